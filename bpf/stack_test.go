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
	sideStack = bpf.DatapathSideSIDE_STACK
	toPodHook = bpf.DatapathHookHOOK_TO_POD
)

// stackClash is a live flow of the fast path to pod A's port 8080, and a connection of
// the same client to it that netfilter carries, say by a NodePort.
func (n *node) stackClash(f family) (fast, stack flow) {
	n.Helper()
	fast = n.hostportFlow(f, syn)
	return fast, flow{in: fast.out, out: fast.out, to: genA, action: toStack, reply: toStack, side: sideStack}
}

// Nobody holds the reply tuple: nothing to do, nothing to remember.
func TestPrivilegedStackSyn(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, o := range openers[:4] {
			for _, p := range []packet.Packet{between(f.client, f.a, o.Transport), between(f.node, f.a, o.Transport),
				between(f.b, f.a, o.Transport)} {
				out := n.toPod(n.a, p)
				n.passed(out, p)
				n.tables(out, nil, nil)
			}
		}
		n.notDropped()
	})
}

// A live flow of the fast path holds it: the client's port is changed both ways.
func TestPrivilegedStackSynOtherPort(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
			n.clear()
			fast, stack := n.stackClash(f)
			n.put(table, fast, time.Second/2)
			fast.seen = n.seenAt(fast)

			out := n.toPod(n.a, stack.in)
			n.otherPort(&stack)
			n.changed(out, stack.out)
			if table == n.maps.Flows {
				n.tables(out, stack.rows(), fast.rows())
			} else {
				n.tables(out, union(stack.rows(), fast.rows()), nil)
			}
			stack.seen = n.seenAt(stack)

			n.changed(n.fromPod(n.a, stack.back(packet.SYN|packet.ACK, 7000, 1001)),
				flow{out: stack.in}.back(packet.SYN|packet.ACK, 7000, 1001))
			stack.state, stack.seq = answered, 7000
			out = n.toPod(n.a, stack.segment(packet.ACK, 1001, 7001))
			n.changed(out, flow{in: stack.out}.segment(packet.ACK, 1001, 7001))
			if table == n.maps.Flows {
				n.tables(out, nil, union(stack.rows(), fast.rows()))
			} else {
				n.tables(out, fast.rows(), stack.rows())
			}
			// The two go on side by side.
			n.changed(n.fromPod(n.a, stack.back(packet.ACK, 7001, 1001)), flow{out: stack.in}.back(packet.ACK, 7001, 1001))
			n.andBack(fast, fast.back(packet.ACK, 9001, 1001))
			n.there(fast, fast.segment(packet.ACK, 1001, 9001))
			n.notDropped()
		}
	})
}

// changed: the stack gets the packet, translated.
func (n *node) changed(out packet.Out, want packet.Packet) {
	n.Helper()
	n.verdict(out, packet.Unspec)
	n.same(out.Frame[packet.EthLen:], want.Frame()[packet.EthLen:])
	if err := packet.Verify(out.Frame); err != nil {
		n.Error(err)
	}
}

// Who holds the reply tuple, and who does not.
func TestPrivilegedStackSynHeld(t *testing.T) {
	closed := timeouts[bpf.DatapathVarTcpClosedTimeoutNs]
	for name, c := range map[string]struct {
		change func(*flow)
		age    time.Duration
		held   bool
	}{
		"live":            {func(*flow) {}, 0, true},
		"closed of late":  {func(f *flow) { f.stateOut = finSelf | finPeer }, closed - time.Second, true},
		"closed long ago": {func(f *flow) { f.stateOut = finSelf | finPeer }, closed + time.Second, false},
		"of a former pod": {func(f *flow) { f.to-- }, 0, false},
		"of the stack":    {func(f *flow) { f.reply = toStack }, 0, false},
		"of the stack for another port": {func(f *flow) {
			f.reply = toStack
			f.in = f.in.As(packet.TCP{Src: 40001, Dst: 80, Seq: 1000, Flags: packet.SYN})
		}, 0, true},
		"other protocol": {func(f *flow) { f.in, f.out = f.in.As(udp), f.out.As(packet.UDP{Src: 40000, Dst: 8080}) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fast, stack := n.stackClash(f)
				c.change(&fast)
				n.put(n.maps.Flows, fast, c.age)
				before := n.flowRows(n.maps.Flows)
				out := n.toPod(n.a, stack.in)
				if c.held {
					n.otherPort(&stack)
					n.changed(out, stack.out)
					n.tables(out, stack.rows(), before)
				} else {
					n.passed(out, stack.in)
					n.tables(out, nil, before)
				}
				n.notDropped()
			})
		})
	}
}

// A connection that netfilter carries anew after it was closed keeps the port it had.
func TestPrivilegedStackSynReopens(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fast, stack := n.stackClash(f)
		stack.out = stack.out.From(f.client, 50000)
		closed := stack
		closed.state, closed.stateOut = finSelf|finPeer, finSelf|finPeer
		n.put(n.maps.Flows, fast, time.Second/2)
		fast.seen = n.seenAt(fast)
		n.put(n.maps.Flows, closed, time.Second)
		out := n.toPod(n.a, stack.in)
		n.changed(out, stack.out)
		n.tables(out, stack.rows(), fast.rows())
		n.notDropped()
	})
}

// A translated row that is of a former pod, or too old, is no row: the SYN is a new
// connection, and clashes as one.
func TestPrivilegedStackSynFormer(t *testing.T) {
	for name, c := range map[string]struct {
		to  uint64
		age time.Duration
	}{
		"of a former pod": {genA - 1, 0},
		"expired":         {genA, timeouts[bpf.DatapathVarTcpTimeoutNs] + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fast, stack := n.stackClash(f)
				former := stack
				former.out, former.to = former.out.From(f.client, 50000), c.to
				n.put(n.maps.Flows, former, c.age)
				n.put(n.maps.Flows, fast, 0)
				out := n.toPod(n.a, stack.in)
				n.otherPort(&stack)
				n.changed(out, stack.out)
				n.changed(n.fromPod(n.a, stack.back(packet.SYN|packet.ACK, 7000, 1001)),
					flow{out: stack.in}.back(packet.SYN|packet.ACK, 7000, 1001))
				n.notDropped()
			})
		})
	}
}

// Beside a live fast flow, what ends a connection or answers passes as it is without a row.
func TestPrivilegedStackSegments(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fast, stack := n.stackClash(f)
		n.put(n.maps.Flows, fast, 0)
		before := n.flowRows(n.maps.Flows)
		for _, flags := range []uint8{packet.RST, packet.SYN | packet.ACK} {
			p := stack.segment(flags, 1001, 7001)
			out := n.toPod(n.a, p)
			n.passed(out, p)
			n.tables(out, nil, before)
		}
		// F3: its row was evicted. The pod must not take it for the fast flow's.
		for _, flags := range []uint8{packet.ACK, packet.FIN | packet.ACK} {
			lost := stack
			out := n.toPod(n.a, stack.segment(flags, 1001, 7001))
			n.otherPort(&lost)
			n.changed(out, lost.segment(flags, 1001, 7001).From(f.client, port(lost.out)))
			n.changed(n.fromPod(n.a, lost.back(packet.RST, 7001, 0)), flow{out: stack.in}.back(packet.RST, 7001, 0))
			n.age(n.maps.Halfopen, time.Minute)
		}
		n.notDropped()
	})
}

// Every reply tuple is taken: counted.
func TestPrivilegedStackSynExhausted(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		_, stack := n.stackClash(f)
		taken := stack
		taken.action, taken.reply, taken.side = toPod, toWire, 0
		n.takeAllPorts(taken)
		n.dropped(n.toPod(n.a, stack.in), n.a.Index, toPodHook, bpf.DatapathDropReasonDROP_PORTS_EXHAUSTED)
	})
}

// The table loses the row before it is read: counted too.
func TestPrivilegedStackSynNoRoom(t *testing.T) {
	n := newChurningNode(t)
	fast, stack := n.stackClash(v4)
	n.put(n.maps.Flows, fast, 0)
	n.dropped(n.toPod(n.a, stack.in), n.a.Index, toPodHook, bpf.DatapathDropReasonDROP_NO_ROOM)
}
