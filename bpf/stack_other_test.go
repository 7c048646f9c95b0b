// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/test/packet"
)

// A datagram from the stack whose reply tuple the fast path has gets another client port,
// as a SYN does: an answer that is on its way must not change sides.
func TestPrivilegedStackUDP(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
			n.clear()
			fast := n.hostportFlow(f, udp)
			n.put(table, fast, time.Second/2)
			fast.seen = n.seenAt(fast)
			stack := flow{in: fast.out, out: fast.out, to: genA, action: toStack, reply: toStack, side: sideStack}
			out := n.toPod(n.a, stack.in)
			n.otherPort(&stack)
			n.changed(out, stack.out)
			n.changed(n.fromPod(n.a, stack.out.Reverse()), stack.in.Reverse())
			n.changed(n.toPod(n.a, stack.in), stack.out)
			n.andBack(fast, fast.out.Reverse())
			n.notDropped()
		}
	})
}

// The fragments of a direct flow, which the fast path leaves to the stack, meet their own
// flow there; what netfilter translated to the same tuple does not.
func TestPrivilegedStackPiece(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		direct := directA(f, openers[2])
		n.put(n.maps.Flows, direct, 0)
		frame := direct.in.With(datagram).Link(n.a.Peer, n.a.MAC).Fragments(fragmentID, 1000)[0]
		piece := func() packet.Out { return n.run("to_pod", n.a.Device, frame) }
		n.same(piece().Frame, frame)
		n.Translated(n, direct.in.To(f.node, 443), direct.in.Reverse())
		if out := piece(); bytes.Equal(out.Frame, frame) {
			n.Error("a translated datagram kept the port that a direct flow has")
		}
	})
}

// The later fragments of a datagram say nothing of ports, and take nothing over.
func TestPrivilegedStackFragment(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fast := n.hostportFlow(f, udp)
		n.put(n.maps.Flows, fast, 0)
		before := n.flowRows(n.maps.Flows)
		frame := fast.out.With(datagram).Link(n.a.Peer, n.a.MAC).Fragments(fragmentID, 1000)[1]
		out := n.run("to_pod", n.a.Device, frame)
		n.verdict(out, packet.Unspec)
		n.same(out.Frame, frame)
		n.tables(out, nil, before)
	})
}

// conntrack cannot be asked about other protocols: the reply's way is marked.
func TestPrivilegedStackOtherProtocol(t *testing.T) {
	for _, o := range openers[4:] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := flow{in: between(f.client, f.a, o.Transport), to: genA, action: toStack, reply: toStack}
				fl.out = fl.in
				out := n.toPod(n.a, fl.in)
				n.passed(out, fl.in)
				n.tables(out, fl.replyRow(), nil)
				out = n.fromPod(n.a, fl.in.Reverse())
				n.passed(out, fl.in.Reverse())

				// A live row of the fast path stays what it is.
				n.forget()
				fast := directA(f, o)
				n.put(n.maps.Flows, fast, time.Second/2)
				before := n.flowRows(n.maps.Flows)
				out = n.toPod(n.a, fast.in)
				n.passed(out, fast.in)
				n.tables(out, nil, before)
				n.notDropped()
			})
		})
	}
}

// replyRow is the reply's row alone.
func (f flow) replyRow() rows {
	_, reply := f.keys()
	return rows{reply: f.rows()[reply]}
}

// H11: to_uplink marks the way of the answers to a socket, or a masquerade, that has the
// number of a hostPort for its source port.
func TestPrivilegedStackToWire(t *testing.T) {
	for _, o := range []opener{openers[0], openers[2]} {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				n.hostport(anyAddr, 40000, o.Protocol(true), 8080)
				fl := flow{in: between(f.node, f.client, o.Transport), action: toStack, reply: toStack}
				fl.out = fl.in
				out := n.toUplink(fl.in)
				n.passed(out, fl.in)
				n.tables(out, fl.replyRow(), nil)
				out = n.fromUplink(answer(fl.in))
				n.passed(out, answer(fl.in))

				// The next packet keeps the row, also one that has expired.
				for _, age := range []time.Duration{2 * time.Second, 10 * time.Second} {
					n.age(n.maps.Halfopen, age)
					fl.seen = 0
					out = n.toUplink(fl.in)
					n.tables(out, fl.replyRow(), nil)
				}
				n.notDropped()
			})
		})
	}
}

// Nothing is marked for other ports and protocols, nor over a live row.
func TestPrivilegedStackToWireNot(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(f.node, 40000, packet.ProtoTCP, 8080)
		for _, p := range []packet.Packet{between(f.node, f.client, ack), between(f.node, f.client, udp),
			between(f.node2, f.client, syn), between(f.node, f.client, syn).From(f.node, 40001),
			between(f.node, f.client, echo)} {
			out := n.toUplink(p)
			n.passed(out, p)
			n.tables(out, nil, nil)
		}
		fast := flow{in: between(f.client, f.node, syn).From(f.client, 80).To(f.node, 40000), to: genA, action: toPod,
			reply: toWire, hostport: true}
		fast.out = fast.in.To(f.a, 8080)
		n.put(n.maps.Flows, fast, 0)
		before := n.flowRows(n.maps.Flows)
		p := between(f.node, f.client, syn)
		out := n.toUplink(p)
		n.passed(out, p)
		n.tables(out, nil, before)
		n.notDropped()
	})
}
