// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const (
	toPod   = bpf.DatapathFlowActionFLOW_TO_POD
	toWire  = bpf.DatapathFlowActionFLOW_TO_WIRE
	toHost  = bpf.DatapathFlowActionFLOW_TO_HOST
	toStack = bpf.DatapathFlowActionFLOW_TO_STACK
)

// directAB is pod A calling pod B.
func directAB(f family, t opener) flow {
	p := between(f.a, f.b, t.Transport)
	return flow{in: p, out: p, from: genA, to: genB, action: toPod, reply: toPod, state: t.state, stateOut: t.state}
}

// directA is somebody outside calling pod A.
func directA(f family, t opener) flow {
	p := between(f.client, f.a, t.Transport)
	return flow{in: p, out: p, to: genA, action: toPod, reply: toWire, state: t.state, stateOut: t.state}
}

// answer is the first thing that comes back to a packet.
func answer(p packet.Packet) packet.Packet {
	r := p.Reverse()
	if t, ok := r.Transport.(packet.TCP); ok {
		t.Seq, t.Ack, t.Flags = 7000, t.Seq+1, packet.SYN|packet.ACK
		return r.As(t)
	}
	return r
}

// Pod to pod: both directions by the fast path, whatever the protocol.
func TestPrivilegedPodToPod(t *testing.T) {
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := directAB(f, o)
				out := n.fromPod(n.a, fl.in)
				n.delivered(out, n.b, fl.in.Hop())
				n.tables(out, fl.rows(), nil)

				n.delivered(n.fromPod(n.b, answer(fl.in)), n.a, answer(fl.in).Hop())
				n.notDropped()
			})
		})
	}
}

// Outside to pod; the answer is routed by the FIB, to a gateway or to a neighbour.
func TestPrivilegedOutsideToPod(t *testing.T) {
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, client := range []netip.Addr{f.client, f.gateway} {
					n.clear()
					fl := directA(f, o)
					fl.in.Src, fl.out.Src = client, client
					out := n.fromUplink(fl.in)
					n.delivered(out, n.a, fl.in.Hop())
					n.tables(out, fl.rows(), nil)

					n.toWire(n.fromPod(n.a, answer(fl.in)), answer(fl.in).Hop())
					n.notDropped()
				}
			})
		})
	}
}

// The host calls a hostPort by its own address: to the pod and back into lo, no hop.
func TestPrivilegedHostToHostport(t *testing.T) {
	for _, o := range openers[:3] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				n.hostport(netip.Addr{}, 80, o.Protocol(true), 8080)
				fl := flow{in: between(f.node, f.node2, o.Transport), to: genA, action: toPod, reply: toHost,
					hostport: true, state: o.state, stateOut: o.state}
				fl.out = fl.in.To(f.a, 8080)
				out := n.fromHost(fl.in.Lives(1))
				n.delivered(out, n.a, fl.out.Lives(1))
				n.tables(out, fl.rows(), nil)

				n.toHost(n.fromPod(n.a, answer(fl.out).Lives(1)), answer(fl.in).Lives(1))
				n.notDropped()
			})
		})
	}
}

// What has no hop left goes to the stack as it came, which answers. A hostPort's packet
// would end there: it goes translated, so that the stack finds it on its way.
func TestPrivilegedLastHop(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(f.node, 80, packet.ProtoUDP, 8080)
		live := directA(f, openers[2])
		n.put(n.maps.Flows, live, 0)
		for name, c := range map[string]struct {
			run func(packet.Packet) packet.Out
			in  packet.Packet
		}{
			"pod to pod":          {n.fromPodA, between(f.a, f.b, udp)},
			"pod to hostport":     {n.fromPodB, between(f.b, f.node, udp)},
			"outside to pod":      {n.fromUplink, between(f.client, f.a, udp)},
			"outside to hostport": {n.fromUplink, between(f.client, f.node, udp)},
			"answer to outside":   {n.fromPodA, live.in.Reverse()},
		} {
			for ttl, verdict := range map[uint8]int32{1: packet.Unspec, 2: packet.Redirect} {
				out := c.run(c.in.Lives(ttl))
				if out.Verdict != verdict {
					n.Errorf("%s, ttl %d: verdict %d, want %d", name, ttl, out.Verdict, verdict)
				}
				if ttl == 1 {
					n.passed(out, n.toTarget(c.in).Lives(ttl))
				}
			}
		}
		// A pod that calls itself has no router on the way.
		self := between(f.a, f.node, udp).Lives(1)
		n.delivered(n.fromPodA(self), n.a, self.From(f.linkEnd, 40000).To(f.a, 8080))
		n.notDropped()
	})
}

// sized fills a packet up to a length, the Ethernet header not counted.
func sized(p packet.Packet, length int) packet.Packet {
	return p.With(bytes.Repeat([]byte{'x'}, length-len(p.With(nil).Frame())+packet.EthLen))
}

// toTarget is the packet as it goes to the stack: to pod A's port 8080 if it called the
// node's port 80.
func (n *node) toTarget(p packet.Packet) packet.Packet {
	for _, f := range families {
		if p.Dst == f.node {
			return p.To(f.a, 8080)
		}
	}
	return p
}

// What is too big for the pod goes to the stack as it came, which answers; a hostPort's
// packet goes translated.
func TestPrivilegedTooBig(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(f.node, 80, packet.ProtoUDP, 8080)
		for _, c := range []struct {
			run func(packet.Packet) packet.Out
			in  packet.Packet
		}{
			{n.fromPodA, between(f.a, f.b, udp)},
			{n.fromUplink, between(f.client, f.a, udp)},
			{n.fromUplink, between(f.client, f.node, udp)},
		} {
			n.verdict(c.run(sized(c.in, podMTU)), packet.Redirect)
			big := sized(c.in, podMTU+1)
			n.passed(c.run(big), n.toTarget(big))
		}
		n.notDropped()
	})
}

// The uplink's MTU is the FIB's affair.
func TestPrivilegedTooBigForUplink(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.MTU(n, n.uplink, 1300)
		fl := directA(f, openers[2])
		n.put(n.maps.Flows, fl, 0)
		fits, big := sized(fl.in.Reverse(), 1300), sized(fl.in.Reverse(), 1301)
		n.toWire(n.fromPod(n.a, fits), fits.Hop())
		n.passed(n.fromPod(n.a, big), big)
		n.notDropped()
	})
}

// A GSO packet is judged by what it will be cut into.
func TestPrivilegedGSO(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		p := sized(between(f.a, f.b, syn), 3000)
		headers := len(p.With(nil).Frame()) - packet.EthLen
		in := packet.In{Program: "from_pod", Device: n.a.Index, Frame: p.Link(n.a.MAC, n.a.Peer).Frame(), GSOSegs: 3}
		in.GSOSize = podMTU - headers
		n.delivered(n.Run(n, in), n.b, p.Hop())
		in.GSOSize++
		n.passed(n.Run(n, in), p)
		n.notDropped()
	})
}

// The host's datagram is past the place where the stack could answer: counted.
func TestPrivilegedTooBigFromHost(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(netip.Addr{}, 80, packet.ProtoUDP, 8080)
		p := between(f.node, f.node, udp)
		n.delivered(n.fromHost(sized(p, podMTU)), n.a, sized(p, podMTU).To(f.a, 8080))
		n.dropped(n.fromHost(sized(p, podMTU+1)), 1, bpf.DatapathHookHOOK_FROM_HOST, bpf.DatapathDropReasonDROP_TOO_BIG)
	})
}

// Where the FIB knows no way, the stack says so.
func TestPrivilegedNoWayBack(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := directA(f, openers[2])
		n.put(n.maps.Flows, fl, 0)
		n.Unreachable(n, netip.PrefixFrom(f.client, f.client.BitLen()))
		n.passed(n.fromPod(n.a, fl.in.Reverse()), fl.in.Reverse())
		n.notDropped()
	})
}

// A row that is lost between being written and being read is no row: the table has room
// for the reply's only, as in an LRU that a flood churns.
func TestPrivilegedNoRoom(t *testing.T) {
	n := newChurningNode(t)
	out := n.fromPod(n.a, between(v4.a, v4.b, udp))
	n.dropped(out, n.a.Index, bpf.DatapathHookHOOK_FROM_POD, bpf.DatapathDropReasonDROP_NO_ROOM)
}

// A pod that came after the row was made: the row is a miss, and the flow begins anew.
// The row may be in either table and may name the pod that called or the one called.
func TestPrivilegedFormerPod(t *testing.T) {
	for name, change := range map[string]func(*flow){
		"called pod":  func(f *flow) { f.to = genB - 1 },
		"calling pod": func(f *flow) { f.from = genA - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, o := range openers {
					for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
						n.clear()
						fl := directAB(f, o)
						former := fl
						change(&former)
						n.put(table, former, 0)
						out := n.fromPod(n.a, fl.in)
						n.delivered(out, n.b, fl.in.Hop())
						for key, want := range fl.rows() {
							n.row(out, key, want)
						}
						n.delivered(n.fromPod(n.b, answer(fl.in)), n.a, answer(fl.in).Hop())
						n.notDropped()
					}
				}
			})
		})
	}
}

// H7: the datagrams of a client that keeps its port reach the hostPort's next pod.
func TestPrivilegedHostportNextPod(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
			n.clear()
			n.hostport(f.node, 80, packet.ProtoUDP, 8080)
			in := between(f.client, f.node, udp)
			n.put(table, flow{in: in, out: in.To(ip("10.9.9.9"), 8080), to: 9, action: toPod, reply: toWire, hostport: true}, 0)
			n.delivered(n.fromUplink(in), n.a, in.To(f.a, 8080).Hop())
			n.toWire(n.fromPod(n.a, in.To(f.a, 8080).Reverse()), in.Reverse().Hop())
			n.notDropped()
		}
	})
}
