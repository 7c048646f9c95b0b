// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

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
						if table == n.maps.Halfopen {
							n.tables(out, fl.rows(), nil)
						} else {
							fl.state, fl.stateOut = reopened, reopened
							n.tables(out, nil, fl.rows())
						}
						n.andBack(fl, fl.back(packet.SYN|packet.ACK, 7000, 1001))
						out = n.there(fl, fl.segment(packet.ACK, 1001, 7001))
						fl.state, fl.stateOut, fl.seq = answered, 0, 7000
						n.tables(out, nil, fl.rows())
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
		bpf.DatapathVarEgressToleranceNs:      36 * time.Millisecond,
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
