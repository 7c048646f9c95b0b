// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const (
	answered = bpf.DatapathFlowStateFLOW_ANSWERED
	finSelf  = bpf.DatapathFlowStateFLOW_FIN_SELF
	finPeer  = bpf.DatapathFlowStateFLOW_FIN_PEER
	reset    = bpf.DatapathFlowStateFLOW_RESET
	middle   = bpf.DatapathFlowStateFLOW_TCP_MID
	reopened = bpf.DatapathFlowStateFLOW_REOPENED
)

// hostportFlow is a client outside that calls node:80, which is pod A's port 8080.
func (n *node) hostportFlow(f family, t packet.Transport) flow {
	n.Helper()
	n.hostport(f.node, 80, t.Protocol(f.node.Is4()), 8080)
	in := between(f.client, f.node, t)
	return flow{in: in, out: in.To(f.a, 8080), to: genA, action: toPod, reply: toWire, hostport: true}
}

// segment is a later packet of fl's client; back turns it into one of the pod's.
func (fl flow) segment(flags uint8, seq, ack uint32) packet.Packet {
	src, dst := fl.in.Transport.Ports()
	return fl.in.As(packet.TCP{Src: src, Dst: dst, Seq: seq, Ack: ack, Flags: flags})
}

func (fl flow) back(flags uint8, seq, ack uint32) packet.Packet {
	src, dst := fl.out.Transport.Ports()
	return fl.out.As(packet.TCP{Src: src, Dst: dst, Seq: seq, Ack: ack, Flags: flags}).Reverse()
}

// seenAt is when the request's row was written.
func (n *node) seenAt(fl flow) uint64 {
	n.Helper()
	key, _ := fl.keys()
	for _, m := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
		if row, ok := packet.Get[bpf.DatapathFlow](n, m, key); ok {
			return row.SeenNs
		}
	}
	n.Fatalf("no row %+v", key)
	return 0
}

// The client calls: both directions pass, translated, and nothing is written but what
// the test says. One that has no hop left behind it is its business alone.
func (n *node) there(fl flow, p packet.Packet) packet.Out {
	n.Helper()
	out := n.fromUplink(p)
	port, _ := fl.out.Transport.Ports()
	_, dport := fl.out.Transport.Ports()
	n.delivered(out, n.a, p.From(fl.out.Src, port).To(fl.out.Dst, dport).Hop())
	return out
}

// andBack: the pod answers.
func (n *node) andBack(fl flow, p packet.Packet) packet.Out {
	n.Helper()
	out := n.fromPod(n.a, p)
	src, dst := fl.in.Transport.Ports()
	n.toWire(out, p.From(fl.in.Dst, dst).To(fl.in.Src, src).Hop())
	return out
}

// A TCP flow moves to `flows` when the client has acknowledged what the pod sent, not
// before: no flood of SYNs, however answered, gets there.
func TestPrivilegedHandshake(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, syn)
		out := n.there(fl, fl.in)
		n.tables(out, fl.rows(), nil)
		fl.seen = n.seenAt(fl)

		out = n.there(fl, fl.segment(packet.ACK, 1001, 7001)) // to what?
		n.tables(out, fl.rows(), nil)

		out = n.andBack(fl, fl.back(packet.SYN|packet.ACK, 7000, 1001))
		fl.state, fl.seq = answered, 7000
		n.tables(out, fl.rows(), nil)

		for _, guess := range []uint32{6999, 7000 + 1<<16 + 1, 0, 1 << 31} {
			out = n.there(fl, fl.segment(packet.ACK, 1001, guess))
			n.tables(out, fl.rows(), nil)
		}
		out = n.there(fl, fl.segment(packet.SYN, 1000, 7001)) // no ACK
		n.tables(out, fl.rows(), nil)

		out = n.there(fl, fl.segment(packet.ACK, 1001, 7001))
		n.tables(out, nil, fl.rows())
		n.andBack(fl, fl.back(packet.ACK|packet.PSH, 7001, 1001))
		n.notDropped()
	})
}

// F4: what is no TCP moves when its client speaks again after an answer: a pod that answers
// a flood keeps that in the small table.
func TestPrivilegedSecondRequestMoves(t *testing.T) {
	for _, o := range openers[2:] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := directA(f, o)
				n.there(fl, fl.in)
				fl.seen = n.seenAt(fl)
				out := n.there(fl, fl.in)
				n.tables(out, fl.rows(), nil)
				fl.state |= answered
				for range 2 {
					out = n.andBack(fl, fl.in.Reverse())
					n.tables(out, fl.rows(), nil)
				}
				out = n.there(fl, fl.in)
				n.tables(out, nil, fl.rows())
				n.notDropped()
			})
		})
	}
}

// A client that goes on in mid-stream proves the pod by acknowledging about what it sends.
func TestPrivilegedMiddleMoves(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := directA(f, openers[1])
		n.there(fl, fl.in)
		fl.seen = n.seenAt(fl)
		n.andBack(fl, fl.back(packet.ACK, 700000, 1001))
		fl.state, fl.seq = middle|answered, 700000
		out := n.there(fl, fl.segment(packet.ACK, 1001, 700000+1<<25))
		n.tables(out, fl.rows(), nil)
		out = n.there(fl, fl.segment(packet.ACK, 1001, 650000))
		n.tables(out, nil, fl.rows())
		n.notDropped()
	})
}

// A packet of either direction keeps both rows, written once a second.
func TestPrivilegedRefresh(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		fl.state = answered
		for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
			for _, pass := range []func() packet.Out{
				func() packet.Out { return n.there(fl, fl.in) },
				func() packet.Out { return n.andBack(fl, fl.out.Reverse()) },
			} {
				n.forget()
				n.put(table, fl, 500*time.Millisecond)
				unchanged := fl
				unchanged.seen = n.seenAt(fl)
				out := pass()
				for key, want := range unchanged.rows() {
					n.row(out, key, want)
				}
				n.forget()
				n.put(table, fl, 2*time.Second)
				out = pass()
				for key, want := range fl.rows() {
					n.row(out, key, want)
				}
			}
		}
	})
}

// F3: the reply's row was evicted, and another flow has its tuple now: the request does
// not take that for its own answer's, and leaves it be.
func TestPrivilegedReplyTaken(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		n.put(n.maps.Flows, fl, 2*time.Second)
		taken := directA(f, openers[2])
		taken.in, taken.out = fl.out, fl.out
		n.put(n.maps.Flows, taken, 0)
		before := n.flowRows(n.maps.Flows)
		request, _ := fl.keys()
		delete(before, request)

		out := n.fromUplink(fl.in)
		n.otherPort(&fl)
		n.delivered(out, n.a, fl.out.Hop())
		n.tables(out, fl.rows(), before)
		n.andBack(fl, fl.out.Reverse())
		n.notDropped()
	})
}

// F3: one of the two rows was evicted. When the client speaks, the flow goes on.
func TestPrivilegedRowEvicted(t *testing.T) {
	for _, o := range []opener{openers[1], openers[2]} {
		for _, evicted := range []string{"request", "reply"} {
			t.Run(o.name+" "+evicted, func(t *testing.T) {
				eachFamily(t, func(n *node, f family) {
					fl := n.hostportFlow(f, o.Transport)
					n.put(n.maps.Flows, fl, 2*time.Second)
					request, reply := fl.keys()
					key := map[string]bpf.DatapathTuple{"request": request, "reply": reply}[evicted]
					if err := n.maps.Flows.Delete(key); err != nil {
						n.Fatal(err)
					}
					n.there(fl, fl.in)
					n.andBack(fl, fl.out.Reverse())
					n.there(fl, fl.in)
					n.notDropped()
				})
			})
		}
	}
}
