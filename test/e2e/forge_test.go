// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// forger is a pod that puts what it likes on its wire.
type forger struct {
	pod    *netns.Pod
	victim *netns.Pod
	node   *netns.Node
	link   *netns.Link
	host   packet.MAC // the node's end of the wire
}

func newForger(t *testing.T, c *cluster) *forger {
	t.Helper()
	node := c.Nodes[0]
	f := &forger{node: node}
	f.victim, _ = serve(t, node, netns.PodSpec{Name: "victim"})
	f.pod, _ = serve(t, node, netns.PodSpec{Name: "forger"})
	f.link, f.host = f.pod.Link(t, f.pod.IfName), mac(t, f.pod.Host.MAC)
	return f
}

func (f *forger) packet(src, dst netip.Addr) packet.Packet {
	return packet.Packet{DstMAC: f.host, SrcMAC: packet.MAC(f.link.MAC), Src: src, Dst: dst}
}

// dropped sends frames and wants each counted as `source`.
func (f *forger) dropped(t *testing.T, frames ...[]byte) {
	t.Helper()
	for i, frame := range frames {
		before := drops(t, f.node, "source")
		if err := f.link.Send(frame); err != nil {
			t.Fatal(err)
		}
		err := netns.Poll(func() error {
			if now := drops(t, f.node, "source"); now != before+1 {
				return fmt.Errorf("source drops: want %d, got %d", before+1, now)
			}
			return nil
		})
		if err != nil {
			t.Errorf("frame %d: %v", i, err)
		}
	}
}

// beliefs are what the node holds for true about its links: neighbours without their
// state, and routes.
func (f *forger) beliefs(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, p := range []*netns.Pod{f.pod, f.victim} {
		for line := range strings.Lines(f.node.MustRun(t, "", "ip", "neigh", "show", "dev", p.Host.Name)) {
			// By its link-local address a pod's kernel may become known whenever it likes.
			if !strings.HasPrefix(line, "fe80:") || !strings.Contains(line, p.Inside.MAC) {
				all = append(all, strings.Fields(line)[0]+" "+macIn(line))
			}
		}
	}
	for _, v := range []string{"-4", "-6"} {
		for line := range strings.Lines(f.node.MustRun(t, "", "ip", v, "route", "show", "table", "all")) {
			// What the kernel counts down is no belief.
			all = append(all, strings.Join(slices.DeleteFunc(strings.Fields(line), func(w string) bool { return strings.HasSuffix(w, "sec") }), " "))
		}
	}
	slices.Sort(all)
	return all
}

// macIn is the MAC address of a line of `ip neigh`, if it has one.
func macIn(line string) string {
	_, mac, _ := strings.Cut(line, "lladdr ")
	mac, _, _ = strings.Cut(mac, " ")
	return mac
}

// S1, IP part: packets of every protocol with another's source address or MAC.
func TestPrivilegedS1Packets(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	f := newForger(t, c)
	outside := c.Outside()
	onOutside := outside.Serve(t, 80)
	before := f.beliefs(t)
	transports := []packet.Transport{
		packet.UDP{Src: 40000, Dst: 80}, packet.TCP{Src: 40000, Dst: 80, Flags: packet.SYN}, packet.TCP{Src: 40000, Dst: 80, Flags: packet.ACK},
		packet.Echo{ID: 1}, packet.SCTP{Src: 40000, Dst: 80}, packet.Raw(packet.ProtoGRE),
	}
	for _, v := range families {
		madeUp := map[int]netip.Addr{4: netip.MustParseAddr("192.0.2.66"), 6: netip.MustParseAddr("2001:db8::66")}[v]
		up := f.node.Uplinks[0].Addr(v)
		for name, forged := range map[string]packet.Packet{
			"Victim":     f.packet(f.victim.Addr(v), outside.Addr(v)),
			"MadeUp":     f.packet(madeUp, outside.Addr(v)),
			"Node":       f.packet(up, outside.Addr(v)),
			"Outside":    f.packet(outside.Addr(v), f.victim.Addr(v)),
			"VictimMAC":  f.packet(f.pod.Addr(v), outside.Addr(v)).Link(f.host, mac(t, f.victim.Inside.MAC)),
			"MadeUpMAC":  f.packet(f.pod.Addr(v), f.victim.Addr(v)).Link(f.host, packet.MAC{2, 0, 0, 0, 0, 0x66}),
			"NodeMAC":    f.packet(f.pod.Addr(v), up).Link(f.host, f.host),
			"ToTheNode":  f.packet(f.victim.Addr(v), up),
			"ToItsOwner": f.packet(f.victim.Addr(v), f.victim.Addr(v)),
		} {
			t.Run(fmt.Sprintf("%s/%d", name, v), func(t *testing.T) {
				var frames [][]byte
				for _, tr := range transports {
					frames = append(frames, forged.As(tr).With([]byte("hold:forged;")).Frame())
				}
				frames = append(frames, forged.As(transports[0]).With(make([]byte, 3000)).Fragments(7, 1400)...)
				f.dropped(t, frames...)
			})
		}
		ask(t, f.pod.NS, call("tcp", outside.Addr(v), 80), want{server: outside.Name, remote: only(f.pod.Addr(v))})
	}
	if onOutside.Has("forged") {
		t.Error("a forged datagram arrived")
	}
	if after := f.beliefs(t); !slices.Equal(before, after) {
		t.Errorf("neighbours and routes of the node: want\n%v, got\n%v", before, after)
	}
}

// S1: what a pod says of others by ARP, as a request, an answer or unasked, is dropped;
// the node asks nobody, so its neighbours stay as ADD wrote them. What it says of itself
// is answered.
func TestPrivilegedS1ARP(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	f := newForger(t, c)
	before := f.beliefs(t)
	own, broadcast := packet.MAC(f.link.MAC), packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	other := mac(t, f.victim.Inside.MAC)
	const request, reply = 1, 2
	for name, frame := range map[string][]byte{
		"GratuitousForVictim": arp(broadcast, own, request, own, f.victim.V4, packet.MAC{}, f.victim.V4),
		"GratuitousReply":     arp(broadcast, own, reply, own, f.victim.V4, broadcast, f.victim.V4),
		"ReplyForVictim":      arp(f.host, own, reply, own, f.victim.V4, f.host, netip.MustParseAddr("169.254.1.1")),
		"ReplyForNode":        arp(f.host, own, reply, own, f.node.Uplinks[0].V4, f.host, f.node.Uplinks[0].V4),
		"ReplyForOutside":     arp(f.host, own, reply, own, c.Outside().V4, f.host, f.node.Uplinks[0].V4),
		"GatewayClaimed":      arp(broadcast, own, reply, own, netip.MustParseAddr("169.254.1.1"), broadcast, netip.MustParseAddr("169.254.1.1")),
		"RequestAsVictim":     arp(broadcast, own, request, own, f.victim.V4, packet.MAC{}, netip.MustParseAddr("169.254.1.1")),
		"OwnAddressOthersMAC": arp(broadcast, own, request, other, f.pod.V4, packet.MAC{}, netip.MustParseAddr("169.254.1.1")),
		"FrameOfAnother":      arp(broadcast, other, request, own, f.pod.V4, packet.MAC{}, netip.MustParseAddr("169.254.1.1")),
		"EverythingOfVictim":  arp(broadcast, other, request, other, f.victim.V4, packet.MAC{}, f.victim.V4),
		"ReplyToVictim":       arp(f.host, own, reply, own, f.node.Uplinks[0].V4, other, f.victim.V4),
	} {
		t.Run(name, func(t *testing.T) { f.dropped(t, frame) })
	}
	if after := f.beliefs(t); !slices.Equal(before, after) {
		t.Errorf("neighbours and routes of the node: want\n%v, got\n%v", before, after)
	}
	if err := f.link.Send(arp(broadcast, own, request, own, f.pod.V4, packet.MAC{}, netip.MustParseAddr("169.254.1.1"))); err != nil {
		t.Fatal(err)
	}
	answer := func(g []byte) bool {
		return len(g) >= 42 && binary.BigEndian.Uint16(g[12:]) == ethARP && binary.BigEndian.Uint16(g[20:]) == reply && packet.MAC(g[6:12]) == f.host
	}
	if _, err := f.link.Next(answer); err != nil {
		t.Errorf("an honest request: %v", err)
	}
}

const ethARP = 0x0806

// arp is a frame from a MAC to another that says of the sender and asks or tells the
// target.
func arp(to, from packet.MAC, op uint16, sender packet.MAC, senderIP netip.Addr, target packet.MAC, targetIP netip.Addr) []byte {
	b := binary.BigEndian.AppendUint16(slices.Concat(to[:], from[:]), ethARP)
	b = append(b, 0, 1, 8, 0, 6, 4, 0, byte(op))
	b = append(append(b, sender[:]...), senderIP.AsSlice()...)
	return append(append(b, target[:]...), targetIP.AsSlice()...)
}
