// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// chain makes pod A one of another plugin, whose sources are checked if flags say so.
func (n *node) chain(flags bpf.DatapathPodFlag) {
	n.Helper()
	n.a.row.Flags = bpf.DatapathPodFlagPOD_CHAINED | flags
	for _, f := range families {
		n.putPod(f.a, n.a.row)
	}
}

// bridgeMAC is what a pod behind a bridge sends to.
var bridgeMAC = packet.MAC{2, 0xb, 0xb, 0xb, 0xb, 1}

// Chained, direct flows stay in the stack; a hostPort is carried, both ways, also for
// frames that are addressed to the bridge that the veth hangs on.
func TestPrivilegedChained(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.chain(0)
		p := between(f.client, f.a, syn)
		out := n.fromUplink(p)
		n.passed(out, p)
		p = between(f.a, f.client, syn)
		n.passed(n.fromPod(n.a, p), p)
		n.tables(out, nil, nil)
		n.hostport(anyAddr, 80, packet.ProtoTCP, 8080)
		fl := n.hostportFlow(f, syn)
		n.delivered(n.fromUplink(fl.in), n.a, fl.out.Hop())
		answer := fl.back(packet.SYN|packet.ACK, 7000, 1001)
		out = n.run("from_pod", n.a.Device, answer.Link(bridgeMAC, n.a.Peer).Frame())
		n.toWire(out, fl.segment(packet.SYN|packet.ACK, 7000, 1001).Reverse().Hop())
		// What pods call goes the same way.
		call := between(f.a, f.node, syn)
		out = n.run("from_pod", n.a.Device, call.Link(bridgeMAC, n.a.Peer).Frame())
		n.redirected(out)
		n.notDropped()
	})
}

// Who is not checked may say what he likes, but what no wire may carry: it is the
// stack's, or the bridge's, as it came, and counts for the limit.
func TestPrivilegedUnchecked(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		own, foreign := between(f.a, f.client, udp), between(f.client2, f.client, udp)
		neighbour := between(f.b, f.client, udp)
		for name, frame := range map[string][]byte{
			"foreign MAC":          own.Link(bridgeMAC, bridgeMAC).Frame(),
			"foreign source":       foreign.Link(n.a.MAC, n.a.Peer).Frame(),
			"another pod's source": neighbour.Link(n.a.MAC, n.a.Peer).Frame(),
			"another pod's MAC":    neighbour.Link(n.a.MAC, n.b.Peer).Frame(),
		} {
			for _, tagged := range []bool{false, true} {
				n.clear()
				n.chain(0)
				out := n.Run(n, packet.In{Program: "from_pod", Device: n.a.Index, Frame: frame, Tagged: tagged})
				if out.Verdict != packet.Unspec || !slices.Equal(out.Frame, frame) {
					t.Errorf("%s, tagged %v: verdict %d, frame %x, want it as it came", name, tagged, out.Verdict, out.Frame)
				}
				n.notDropped()
				n.a.row.Flags |= bpf.DatapathPodFlagPOD_LIMIT_EGRESS
				n.putPod(f.a, n.a.row)
				packet.Put(n, n.maps.Limits, n.limitKey(), bpf.DatapathLimit{RateBits: megabit, ClockNs: fineNow() + uint64(time.Hour)})
				out = n.Run(n, packet.In{Program: "from_pod", Device: n.a.Index, Frame: frame, Tagged: tagged})
				n.dropped(out, n.a.Index, fromPodHook, bpf.DatapathDropReasonDROP_EGRESS_LIMIT)
				if err := n.maps.Limits.Delete(n.limitKey()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, lo := range []packet.Packet{between(f.loopback, f.client, udp), between(f.a, f.loopback, udp)} {
			n.clear()
			n.chain(0)
			n.dropped(n.fromPod(n.a, lo), n.a.Index, fromPodHook, dropLoopback)
		}
	})
}

// Neighbours of a chained pod are the main plugin's, but for the address that hides a
// caller.
func TestPrivilegedChainedNeighbours(t *testing.T) {
	n := newNode(t)
	broadcast := packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, flags := range []bpf.DatapathPodFlag{0, checked} {
		n.chain(flags)
		for _, frame := range [][]byte{
			arp(arpRequest, broadcast, n.a.Peer, v4.a, ip("10.1.0.1"), packet.MAC{}),
			arp(arpReply, n.a.MAC, n.a.Peer, v4.a, v4.b, n.a.MAC),
			nd(135, 0, 1, v6.a, ip("ff02::1:ff00:1"), ip("fd00:1::1"), n.a.Peer).Link(bridgeMAC, n.a.Peer).Frame(),
		} {
			out := n.run("from_pod", n.a.Device, frame)
			if out.Verdict != packet.Unspec || !slices.Equal(out.Frame, frame) {
				t.Errorf("flags %#x: verdict %d, frame %x, want it as it came", flags, out.Verdict, out.Frame)
			}
		}
		out := n.fromPod(n.a, nd(135, 0, 1, v6.a, ip("ff02::1:ff00:1"), ip("fe80::1"), n.a.Peer))
		n.redirected(out)
		n.same(out.Frame, nd(136, 0xe0, 2, ip("fe80::1"), v6.a, ip("fe80::1"), n.a.MAC).Link(n.a.Peer, n.a.MAC).Frame())
		n.notDropped()
	}
	lies := [][]byte{
		arp(arpReply, n.a.MAC, n.a.Peer, ip("10.1.0.1"), v4.b, n.a.MAC),
		between(ip("fe80::1234"), ip("ff02::1"), packet.ICMP{Type: 134}).With(make([]byte, 12)).Lives(255).Link(bridgeMAC, n.a.Peer).Frame(),
		between(v4.b, v4.client, udp).Link(bridgeMAC, n.a.Peer).Frame(),
	}
	for i, frame := range lies {
		n.clear()
		n.chain(checked)
		n.dropped(n.run("from_pod", n.a.Device, frame), n.a.Index, fromPodHook, dropSource)
		n.clear()
		n.chain(0)
		if out := n.run("from_pod", n.a.Device, frame); out.Verdict != packet.Unspec || !slices.Equal(out.Frame, frame) {
			t.Errorf("lie %d, unchecked: verdict %d, frame %x, want it as it came", i, out.Verdict, out.Frame)
		}
		n.notDropped()
	}
}

// A chained pod's interface is in use while it has no row of pods: before ADD has written
// it, after DEL has deleted it, and for as long as it lives if it has no address.
func TestPrivilegedChainedRowless(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		frame := between(f.a, f.client, udp).Link(bridgeMAC, n.a.Peer).Frame()
		for flags, drop := range map[bpf.DatapathPodFlag]bool{bpf.DatapathPodFlagPOD_CHAINED: false, bpf.DatapathPodFlagPOD_CHAINED | checked: true} {
			n.clear()
			for _, a := range []netip.Addr{v4.a, v6.a} {
				if err := n.maps.Pods.Delete(bpf.DatapathPodKey{Addr: packet.Addr(a)}); err != nil {
					t.Fatal(err)
				}
			}
			packet.Put(n, n.maps.Ifaces, bpf.DatapathIfaceKey{Ifindex: uint32(n.a.Index)}, bpf.DatapathIface{Flags: flags})
			out := n.run("from_pod", n.a.Device, frame)
			if drop {
				n.dropped(out, n.a.Index, fromPodHook, dropSource)
				continue
			}
			if out.Verdict != packet.Unspec || !slices.Equal(out.Frame, frame) {
				t.Errorf("verdict %d, frame %x, want it as it came", out.Verdict, out.Frame)
			}
			n.notDropped()
		}
	})
}
