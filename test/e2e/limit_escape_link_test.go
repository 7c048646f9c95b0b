// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// B5: the limit is the interface's. What a container sends by the limited one is held to
// it, also from the address of its other one; by the other one nothing is.
func TestPrivilegedB5TwoInterfaces(t *testing.T) {
	netns.RequireRoot(t)
	const rate = 10e6
	c := wire(t, netns.Layout{}, "egress_limit")
	node, outside := c.Nodes[0], c.Outside()
	outside.MustRun(t, quiet, "nft", "-f", "-")
	ns := netns.New(t, "two")
	limited := node.Add(t, netns.PodSpec{Name: "two", NS: ns, Bandwidth: limit("egress", rate)})
	free := node.Add(t, netns.PodSpec{Name: "two", NS: ns, IfName: "net1"})
	up := newMeter(t, noMark, noMark).hang(t, node.NS, node.Uplinks[0].Dev, true)
	for _, tc := range []struct {
		name    string
		by      *netns.Pod
		from    []*netns.Pod
		limited bool
	}{
		{"OthersAddress", limited, []*netns.Pod{free}, true},
		{"BothAddresses", limited, []*netns.Pod{limited, free}, true},
		{"ByTheOther", free, []*netns.Pod{limited, free}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &attacker{T: t, pod: tc.by, node: node, outside: outside, rate: rate, own: mac(t, tc.by.Inside.MAC), host: mac(t, tc.by.Host.MAC)}
			var frames [][]byte
			for _, from := range tc.from {
				for _, v := range families {
					frames = append(frames, a.packet(outside.Addr(v), packet.UDP{Src: 40000, Dst: discard}, 1400).From(from.Addr(v), 40000).Frame())
				}
			}
			seen := watch(up.total)
			s := a.launch(func(a *attacker) []func() error { return a.bursts(frames) })
			<-time.After(escapeWindow + 150*time.Millisecond)
			a.end(s)
			got, err := seen.most(escapeWindow)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.3f Mbit/s", got/1e6)
			some, much := 0.5, 2.
			if netns.Emulated() {
				some, much = 0.02, 1.2
			}
			if share := got / rate; tc.limited && (share > highest || share < some) || !tc.limited && share < much {
				t.Errorf("limited %v: got %.3f of %d Mbit/s", tc.limited, share, int(rate/1e6))
			}
		})
	}
}

// B5: what comes to a pod is held on the node, so nothing that the pod does lets more in:
// neither its qdiscs nor its questions, whose answers count.
func TestPrivilegedB5Ingress(t *testing.T) {
	netns.RequireRoot(t)
	limits := escapeLimits()
	c := wire(t, netns.Layout{Nodes: len(limits)}, "source")
	outside := c.Outside()
	var busy sync.WaitGroup
	for i, rate := range limits {
		node := c.Nodes[i]
		p := node.Add(t, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Bandwidth: limit("ingress", rate)})
		peer := node.Add(t, netns.PodSpec{Name: fmt.Sprintf("peer%d", i)})
		a := &attacker{T: t, pod: p, peer: peer, node: node, outside: outside, rate: rate, own: mac(t, p.Inside.MAC), host: mac(t, p.Host.MAC)}
		a.back = newMeter(t, noMark, noMark).hang(t, p.NS, p.IfName, false)
		p.MustRun(t, quiet, "nft", "-f", "-")
		p.MustRun(t, "", "tc", "qdisc", "replace", "dev", p.IfName, "root", "pfifo_fast")
		a.pod.IP(t, "link set eth0 mtu 9000 txqueuelen 10000")
		busy.Go(func() { a.floods() })
	}
	busy.Wait()
}

// floods has everybody send to the pod, and the pod ask everybody.
func (a *attacker) floods() {
	seen := watch(a.back.total)
	r, err := netns.Stream{Proto: "tcp", From: a.outside.NS, To: a.pod.NS, Dst: a.pod.V4}.Start()
	if err != nil {
		a.Error(err)
		return
	}
	a.after = append(a.after, r.Stop)
	var questions [][]byte
	for _, p := range []packet.Packet{a.packet(a.node.Uplinks[0].V4, packet.Echo{ID: 7}, 1000), a.packet(a.outside.V6, packet.Echo{ID: 7}, 1000)} {
		questions = append(questions, p.Frame(), p.Frame())
	}
	questions = append(questions, arp(a.host, a.own, 1, a.own, a.pod.V4, packet.MAC{}, netip.MustParseAddr("169.254.1.1")))
	f := &forger{pod: a.pod, link: a.pod.Link(a, a.pod.IfName), host: a.host}
	questions = append(questions, f.discovery(a.pod.V6, gateway, neighbourSolicit, gateway, 1, a.own).Frame())
	s := a.launch(func(a *attacker) []func() error {
		return append(a.bursts(slices.Repeat(questions, 4)), a.segmenter(a.outside.NS, a.pod.V6, 1400, 44),
			a.segmenter(a.peer.NS, a.pod.V4, 1400, 44), a.segmenter(a.node.NS, a.pod.V6, 200, 60))
	})
	<-time.After(escapeWindow + 150*time.Millisecond)
	a.end(s)
	got, err := seen.most(escapeWindow)
	if err != nil {
		a.Error(err)
	}
	a.Logf("limit %d Mbit/s: %.3f Mbit/s came in", a.rate/1e6, got/1e6)
	least := 0.5
	if netns.Emulated() {
		least = 0.02
	}
	if share := got / float64(a.rate); share > highest || share < least {
		a.Errorf("limit %d Mbit/s: want %.1f-%.2f of it in %v, got %.3f Mbit/s", a.rate/1e6, least, highest, escapeWindow, got/1e6)
	}
}

// The meter agrees with a device that has to cut by itself.
func TestPrivilegedB5Meter(t *testing.T) {
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a := newAttacker(t, c, node, 0)
	outside.MustRun(t, quiet, "nft", "-f", "-")
	node.IP(t, "link set up0 gso_max_segs 1")
	up := newMeter(t, noMark, noMark).hang(t, node.NS, "up0", true)
	arrived := func() uint64 { return received(t, outside.NS, "port0") }
	// What the kernel sends by itself is on both, but for a frame between two readings.
	apart := func() uint64 {
		for {
			said := up.total()
			if on := arrived(); up.total() == said {
				return on - said
			}
		}
	}
	compare := func(v int, tr packet.Transport, payload, size int) error {
		before, ahead := up.total(), apart()
		if err := a.cutter(outside.Addr(v), tr, payload, size)(); err != nil {
			t.Logf("%d bytes of %d: %v", payload, size, err)
			return nil
		}
		return netns.Poll(func() error {
			if said, on := up.total(), arrived()-ahead; said-before < uint64(payload) || on != said {
				return fmt.Errorf("%T, IPv%d, %d bytes in pieces of %d: the device has %d, the meter %d", tr, v, payload, size, on-before, said-before)
			}
			return nil
		})
	}
	for _, payload := range []int{1000, 5000, 60000} {
		for _, size := range []int{80, 100, 1400} {
			for _, v := range families {
				for _, tr := range []packet.Transport{packet.TCP{Src: 40000, Dst: discard, Flags: packet.ACK, Options: []byte{1, 1, 1, 1}}, packet.UDP{Src: 40000, Dst: discard}} {
					err := compare(v, tr, payload, size)
					if err != nil { // such a frame
						err = compare(v, tr, payload, size)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	a.end(a.launch(func(*attacker) []func() error { return nil }))
}
