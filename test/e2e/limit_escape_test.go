// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// What may be said on a link beside discovery_test.go's.
const multicastReport, routerSolicit, multicastReport2 = 131, 133, 143

// escapeWindow is what a pod's bytes are counted over.
const escapeWindow = 2 * time.Second

// attacks are made one after the other on the three rates at once. Streams come by
// sockets, all else by raw frames that no queue of the pod holds up.
var attacks = []struct {
	name string
	loud bool // offers more than a limit however few of it pass
	arm  attack
}{
	{"PastTheQueue", true, (*attacker).tiny}, // whose shaper still stands
	{"NoQdisc", false, (*attacker).sockets},
	{"FasterTBF", false, func(a *attacker) []func() error {
		a.pod.MustRun(a, "", "tc", "qdisc", "replace", "dev", a.pod.IfName, "root", "tbf", "rate", "10gbit", "burst", "10mb", "limit", "100mb")
		return a.sockets()
	}},
	{"Segments", true, (*attacker).segments},
	{"Cut", true, (*attacker).cut},
	{"Fragments", true, (*attacker).fragments},
	{"Link", true, (*attacker).link},
	{"Addresses", true, (*attacker).addresses},
	{"AllAtOnce", true, func(a *attacker) []func() error {
		return slices.Concat(a.sockets(), a.tiny(), a.segments(), a.cut(), a.fragments())
	}},
}

// B5: whatever a pod with CAP_NET_ADMIN does, no two seconds see more of it than 1.02 of
// its limit: outside, at the pod beside it, and at what goes up the node's stack.
func TestPrivilegedB5Escape(t *testing.T) {
	netns.RequireRoot(t)
	limits := escapeLimits()
	c := wire(t, netns.Layout{Nodes: len(limits)}, "egress_limit", "source", "loopback")
	c.Outside().MustRun(t, quiet, "nft", "-f", "-")
	var all []*attacker
	for i, rate := range limits {
		a := newAttacker(t, c, c.Nodes[i], rate)
		a.hangMeters()
		all = append(all, a)
	}
	for _, what := range attacks {
		t.Run(what.name, func(t *testing.T) {
			var busy sync.WaitGroup
			for _, a := range all {
				a.T = t
				busy.Go(func() {
					if what.name != "PastTheQueue" {
						_, _ = a.pod.Run("", "tc", "qdisc", "del", "dev", a.pod.IfName, "root") // may be gone
					}
					a.holds(what.arm, what.loud)
				})
			}
			busy.Wait()
		})
	}
}

// escapeLimits are those of the attackers, which an emulated machine has one of.
func escapeLimits() []uint64 {
	if netns.Emulated() {
		return []uint64{10e6}
	}
	return []uint64{1e6, 10e6, 100e6}
}

// holds attacks for a window and a little more, and looks at what passed.
func (a *attacker) holds(what attack, loud bool) {
	before := a.offered()
	a.answered.Store(false)
	seen := watch(a.passed)
	s := a.launch(what)
	<-time.After(escapeWindow + 150*time.Millisecond)
	a.end(s)
	got, err := seen.most(escapeWindow)
	if err != nil {
		a.Error(err)
	}
	offer := float64(a.offered()-before) * 8 / escapeWindow.Seconds()
	a.Logf("limit %d Mbit/s: offered %.1f, passed %.3f Mbit/s", a.rate/1e6, offer/1e6, got/1e6)
	if got > highest*float64(a.rate) {
		a.Errorf("limit %d Mbit/s: want %.2f of it in %v at most, got %.3f Mbit/s", a.rate/1e6, highest, escapeWindow, got/1e6)
	}
	if weak := a.rate > 10e6 || netns.Emulated(); loud && !weak && offer < 1.5*float64(a.rate) {
		a.Errorf("limit %d Mbit/s: only %.2f Mbit/s were offered, which is no attack", a.rate/1e6, offer/1e6)
	}
}

// hangMeters counts what passed from_pod: by the uplink, to the other pod, up the stack;
// and what came back, which stands for the questions that the node answers itself.
func (a *attacker) hangMeters() {
	a.meters = []*meter{
		newMeter(a.T, counted, noMark).hang(a.T, a.node.NS, a.node.Uplinks[0].Dev, true),
		newMeter(a.T, noMark, counted).hang(a.T, a.node.NS, a.pod.Host.Name, false),
		newMeter(a.T, noMark, noMark).hang(a.T, a.peer.NS, a.peer.IfName, false),
	}
	a.back = newMeter(a.T, noMark, noMark).hang(a.T, a.node.NS, a.pod.Host.Name, true)
}

func (a *attacker) passed() (sum uint64) {
	for _, m := range a.meters {
		sum += m.total()
	}
	if a.answered.Load() {
		sum += a.back.total() - a.ignored
	}
	return sum
}

// offered is the bytes that came from the pod, before they were looked at, without the
// headers that a device would repeat.
func (a *attacker) offered() uint64 { return received(a.T, a.node.NS, a.pod.Host.Name) }

func (a *attacker) sockets() []func() error {
	a.load(netns.Stream{Proto: "tcp", To: a.outside.NS, Dst: a.outside.V4, Flows: 4}, netns.Stream{Proto: "tcp", To: a.peer.NS, Dst: a.peer.V6, Flows: 4},
		netns.Stream{Proto: "tcp", To: a.node.NS, Dst: a.node.Uplinks[0].V4, Flows: 4}, netns.Stream{Proto: "udp", To: a.peer.NS, Dst: a.peer.V4, Flows: 2})
	return nil
}

func (a *attacker) tiny() []func() error {
	var frames [][]byte
	for _, v := range families {
		for i, to := range a.targets(v) {
			for port := range uint16(8) {
				frames = append(frames, a.packet(to, packet.UDP{Src: 40000 + port, Dst: discard}, 1+i).Frame())
			}
		}
	}
	return a.bursts(frames)
}

func (a *attacker) segments() []func() error {
	all := []func() error{}
	for _, v := range families {
		for _, to := range a.targets(v) {
			all = append(all, a.segmenter(a.pod.NS, to, 1400, 44), a.segmenter(a.pod.NS, to, 1, 64))
		}
	}
	return all
}

func (a *attacker) cut() []func() error {
	tcp := packet.TCP{Src: 40000, Dst: discard, Flags: packet.ACK}
	return []func() error{
		a.cutter(a.outside.V4, tcp, 64000, 1400), a.cutter(a.peer.V6, tcp, 64000, 1400),
		a.cutter(a.outside.V6, tcp, 64000, 8), a.cutter(a.peer.V4, tcp, 64000, 8),
		a.cutter(a.outside.V4, packet.UDP{Src: 40000, Dst: discard}, 60000, 1), a.cutter(a.peer.V6, packet.UDP{Src: 40000, Dst: discard}, 64000, 1400),
	}
}

// fragments come with and without their first one, and both with many of small size.
func (a *attacker) fragments() []func() error {
	var frames [][]byte
	for _, v := range families {
		whole := a.packet(a.outside.Addr(v), packet.UDP{Src: 40000, Dst: discard}, 4000)
		frames = slices.Concat(frames, whole.Fragments(7, 1400), whole.Fragments(8, 1400)[1:], whole.Fragments(9, 8)[:100])
	}
	return a.bursts(frames)
}

// link is what is no packet of the pod's to anybody: the node's answers count for the
// questions.
func (a *attacker) link() []func() error {
	a.ignored = a.back.total()
	a.answered.Store(true)
	broadcast := packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	gateway4 := netip.MustParseAddr("169.254.1.1")
	frames := [][]byte{
		arp(broadcast, a.own, 1, a.own, a.pod.V4, packet.MAC{}, gateway4),
		arp(a.host, a.own, 1, a.own, a.pod.V4, packet.MAC{}, gateway4),
		arp(broadcast, a.own, 2, a.own, a.pod.V4, broadcast, a.pod.V4),
	}
	for _, ethertype := range []uint16{0x88b5, 0x88cc, 0x8100, 0x88a8, 0x8847, 0x0200, 0x0026} {
		for _, size := range []int{60, 1514} {
			frame := append(binary.BigEndian.AppendUint16(slices.Concat(a.host[:], a.own[:]), ethertype), make([]byte, size-packet.EthLen)...)
			frames = append(frames, frame)
		}
	}
	f := &forger{pod: a.pod, victim: a.peer, node: a.node, link: a.pod.Link(a, a.pod.IfName), host: a.host}
	for _, src := range []netip.Addr{a.pod.V6, linkLocal(a.T, a.pod), netip.IPv6Unspecified()} {
		for _, target := range []netip.Addr{gateway, a.outside.V6} {
			frames = append(frames, f.discovery(src, gateway, neighbourSolicit, target, 1, a.own).Frame())
		}
		for _, kind := range []uint8{multicastReport, multicastReport2, routerSolicit, neighbourAdvert} {
			frames = append(frames, f.discovery(src, allNodes, kind, src, 1, a.own).Frame())
		}
		frames = append(frames, a.packet(gateway, packet.UDP{Src: 40000, Dst: discard}, 1000).From(src, 40000).Frame())
	}
	return a.bursts(frames)
}

// addresses takes others, and sends from them and from those that it never had.
func (a *attacker) addresses() []func() error {
	a.pod.IP(a, "addr add 192.0.2.77/32 dev eth0", "addr add 2001:db8::77/128 dev eth0 nodad", "link set eth0 address 02:00:00:00:00:77")
	a.after = append(a.after, func() {
		a.pod.IP(a, "addr del 192.0.2.77/32 dev eth0", "addr del 2001:db8::77/128 dev eth0", fmt.Sprintf("link set eth0 address %s", a.pod.Inside.MAC))
	})
	var frames [][]byte
	for _, other := range []packet.MAC{a.own, {2, 0, 0, 0, 0, 0x77}, a.host} {
		for _, src := range []netip.Addr{a.pod.V4, a.pod.V6, netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77"), a.peer.V4, a.peer.V6} {
			v := map[bool]int{true: 4, false: 6}[src.Is4()]
			for _, to := range a.targets(v) {
				frames = append(frames, a.packet(to, packet.UDP{Src: 40000, Dst: discard}, 1000).From(src, 40000).Link(a.host, other).Frame())
			}
		}
	}
	return append(a.bursts(frames), a.segmenter(a.pod.NS, a.outside.V4, 1400, 40))
}
