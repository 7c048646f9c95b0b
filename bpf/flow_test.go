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

// What is no TCP moves when the pod has answered.
func TestPrivilegedAnswerMoves(t *testing.T) {
	for _, o := range openers[2:] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := directA(f, o)
				n.there(fl, fl.in)
				fl.seen = n.seenAt(fl)
				out := n.there(fl, fl.in)
				n.tables(out, fl.rows(), nil)
				out = n.andBack(fl, fl.in.Reverse())
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

// Closing: by a FIN from either side, in either order, or by a reset from either.
func TestPrivilegedClose(t *testing.T) {
	for name, c := range map[string]struct {
		flags   []uint8 // the client's first, negative of the pod's
		byPod   []bool
		request bpf.DatapathFlowState
		reply   bpf.DatapathFlowState
	}{
		"client's FIN": {[]uint8{packet.FIN | packet.ACK}, []bool{false}, finSelf, finPeer},
		"pod's FIN":    {[]uint8{packet.FIN | packet.ACK}, []bool{true}, finPeer, finSelf},
		"both FINs": {[]uint8{packet.FIN | packet.ACK, packet.FIN | packet.ACK}, []bool{false, true},
			finSelf | finPeer, finSelf | finPeer},
		"client's reset": {[]uint8{packet.RST}, []bool{false}, reset, reset},
		"pod's reset":    {[]uint8{packet.RST | packet.ACK}, []bool{true}, reset, reset},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := n.hostportFlow(f, syn)
				n.put(n.maps.Flows, fl, 500*time.Millisecond)
				var out packet.Out
				for i, flags := range c.flags {
					if c.byPod[i] {
						out = n.andBack(fl, fl.back(flags, 7001, 1001))
					} else {
						out = n.there(fl, fl.segment(flags, 1001, 7001))
					}
				}
				fl.state, fl.stateOut = c.request, c.reply
				n.tables(out, nil, fl.rows())
				// The last segments still pass.
				n.there(fl, fl.segment(packet.ACK, 1002, 7002))
				n.andBack(fl, fl.back(packet.ACK, 7002, 1002))
				n.tables(out, nil, fl.rows())
				n.notDropped()
			})
		})
	}
}

// A refused connection: the reset closes it while it is half open, and proves nothing.
func TestPrivilegedRefused(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, syn)
		n.there(fl, fl.in)
		out := n.andBack(fl, fl.back(packet.RST|packet.ACK, 0, 1001))
		fl.state, fl.stateOut = reset, reset
		n.tables(out, fl.rows(), nil)
	})
}

// A SYN on a closed flow begins it anew: the client keeps the port that it had towards
// the pod, and the old rows are gone.
func TestPrivilegedReopen(t *testing.T) {
	for name, state := range map[string]bpf.DatapathFlowState{"FINs": finSelf | finPeer, "reset": reset} {
		for port := range map[uint16]bool{40000: true, 50000: true} {
			t.Run(name, func(t *testing.T) {
				eachFamily(t, func(n *node, f family) {
					for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
						n.clear()
						fl := n.hostportFlow(f, syn)
						fl.out = fl.out.From(f.client, port)
						closed := fl
						closed.state, closed.stateOut = state, state
						n.put(table, closed, time.Second)
						out := n.there(fl, fl.in)
						n.tables(out, fl.rows(), nil)
						n.andBack(fl, fl.back(packet.SYN|packet.ACK, 7000, 1001))
						n.notDropped()
					}
				})
			})
		}
	}
}

// A SYN on a flow that is not closed is a retransmission: it changes nothing.
func TestPrivilegedRetransmittedSyn(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, syn)
		fl.state = finSelf
		fl.stateOut = finPeer
		n.put(n.maps.Flows, fl, 0)
		fl.seen = n.seenAt(fl)
		out := n.there(fl, fl.in)
		n.tables(out, nil, fl.rows())
	})
}

// Rows die of age, by protocol, state and table. What an expired row leaves to do is the
// stack's, since no hostPort is open any more.
func TestPrivilegedExpiry(t *testing.T) {
	for _, c := range []struct {
		name    string
		packet  packet.Transport
		state   bpf.DatapathFlowState
		half    bool
		timeout string
	}{
		{"SYN", syn, 0, true, bpf.DatapathVarTcpSynTimeoutNs},
		{"TCP", ack, answered, false, bpf.DatapathVarTcpTimeoutNs},
		{"half-closed TCP", ack, finSelf, false, bpf.DatapathVarTcpTimeoutNs},
		{"closed TCP", ack, finSelf | finPeer, false, bpf.DatapathVarTcpClosedTimeoutNs},
		{"reset TCP", ack, reset, false, bpf.DatapathVarTcpClosedTimeoutNs},
		{"refused TCP", ack, reset, true, bpf.DatapathVarTcpClosedTimeoutNs},
		{"unanswered UDP", udp, 0, true, bpf.DatapathVarUdpUnansweredTimeoutNs},
		{"UDP", udp, 0, false, bpf.DatapathVarUdpTimeoutNs},
		{"unanswered SCTP", packet.SCTP{Src: 40000, Dst: 80}, 0, true, bpf.DatapathVarUdpUnansweredTimeoutNs},
		{"SCTP", packet.SCTP{Src: 40000, Dst: 80}, 0, false, bpf.DatapathVarOtherTimeoutNs},
		{"echo", echo, 0, false, bpf.DatapathVarOtherTimeoutNs},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				in := between(f.client, f.node, c.packet)
				port := uint16(8080)
				if c.packet == packet.Transport(echo) {
					port = 0
				}
				fl := flow{in: in, out: in.To(f.a, port), to: genA, action: toPod, reply: toWire,
					hostport: true, state: c.state, stateOut: c.state}
				table := n.maps.Flows
				if c.half {
					table = n.maps.Halfopen
				}
				n.put(table, fl, timeouts[c.timeout]-time.Second/2)
				n.verdict(n.fromUplink(fl.in), packet.Redirect)
				n.forget()
				n.put(table, fl, timeouts[c.timeout]+time.Second/100)
				n.passed(n.fromUplink(fl.in), fl.in)
				n.passed(n.fromPod(n.a, fl.out.Reverse()), fl.out.Reverse())
			})
		})
	}
}

// The timeouts are shorter in these tests than as shipped.
func TestTimeouts(t *testing.T) {
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{
		bpf.DatapathVarTcpSynTimeoutNs:        time.Minute,
		bpf.DatapathVarTcpTimeoutNs:           5 * 24 * time.Hour,
		bpf.DatapathVarTcpClosedTimeoutNs:     time.Minute,
		bpf.DatapathVarUdpUnansweredTimeoutNs: 30 * time.Second,
		bpf.DatapathVarUdpTimeoutNs:           3 * time.Minute,
		bpf.DatapathVarOtherTimeoutNs:         10 * time.Minute,
		bpf.DatapathVarEgressToleranceNs:      20 * time.Millisecond,
	} {
		var got uint64
		if err := spec.Variables[name].Get(&got); err != nil {
			t.Fatal(err)
		}
		if time.Duration(got) != want {
			t.Errorf("%s: %s, want %s", name, time.Duration(got), want)
		}
	}
}
