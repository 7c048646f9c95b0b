// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// clash is a flow that came by a called address, and a direct one of the same client,
// with the same port, to the same port of the pod: their replies would look alike.
func (n *node) clash(f family, t packet.Transport) (first, second flow) {
	n.Helper()
	first = n.hostportFlow(f, t)
	in := first.out
	return first, flow{in: in, out: in, to: genA, action: toPod, reply: toWire}
}

// port is the client's port towards the pod, as the request's row has it.
func (n *node) port(fl flow) uint16 {
	n.Helper()
	key, _ := fl.keys()
	for _, m := range []*ebpf.Map{n.maps.Halfopen, n.maps.Flows} {
		if row, ok := packet.Get[bpf.DatapathFlow](n, m, key); ok {
			return row.Sport
		}
	}
	n.Fatalf("no row %s", name(key))
	return 0
}

// otherPort: the flow has got another client port, and says so in fl.
func (n *node) otherPort(fl *flow) {
	n.Helper()
	old, _ := fl.in.Transport.Ports()
	port := n.port(*fl)
	if port == old || port < 1024 {
		n.Errorf("client's port: got %d for %d", port, old)
	}
	fl.out = fl.out.From(fl.out.Src, port)
}

// A live flow of another called address holds the reply tuple: the second flow's client
// gets another port towards the pod, and each reply has the address that was called.
func TestPrivilegedClaimOtherPort(t *testing.T) {
	for _, o := range openers[:4] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, table := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
					n.clear()
					first, second := n.clash(f, o.Transport)
					second.state, second.stateOut = o.state, o.state
					n.put(table, first, time.Second/2)
					first.seen = n.seenAt(first)

					out := n.fromUplink(second.in)
					n.otherPort(&second)
					n.delivered(out, n.a, second.out.Hop())
					if table == n.maps.Flows {
						n.tables(out, second.rows(), first.rows())
					} else {
						n.tables(out, union(first.rows(), second.rows()), nil)
					}
					n.toWire(n.fromPod(n.a, second.out.Reverse()), second.in.Reverse().Hop())
					n.toWire(n.fromPod(n.a, first.out.Reverse()), first.in.Reverse().Hop())
					n.there(second, second.in)
					n.notDropped()
				}
			})
		})
	}
}

// What has no port to change is the stack's.
func TestPrivilegedClaimNoPort(t *testing.T) {
	for _, o := range openers[5:] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				in := between(f.client, f.node, o.Transport)
				_, port := in.Transport.Ports()
				first := flow{in: in, out: in.To(f.a, port), to: genA, action: toPod, reply: toWire, hostport: true}
				n.put(n.maps.Flows, first, 0)
				before := n.flowRows(n.maps.Flows)
				out := n.fromUplink(first.out)
				n.passed(out, first.out)
				n.tables(out, nil, before)
				n.notDropped()
			})
		})
	}
}

// A row that is nobody's claim: the reply tuple is taken over, the port is kept.
func TestPrivilegedClaimSamePort(t *testing.T) {
	closed := timeouts[bpf.DatapathVarTcpClosedTimeoutNs]
	for name, c := range map[string]struct {
		change func(*flow)
		age    time.Duration
		held   bool
	}{
		"live":             {func(*flow) {}, 0, true},
		"closed of late":   {func(f *flow) { f.stateOut = finSelf | finPeer }, closed - time.Second, true},
		"reset of late":    {func(f *flow) { f.stateOut = reset }, closed - time.Second, true},
		"closed long ago":  {func(f *flow) { f.stateOut = finSelf | finPeer }, closed + time.Second, false},
		"expired":          {func(*flow) {}, timeouts[bpf.DatapathVarTcpTimeoutNs] + time.Second, false},
		"of a former pod":  {func(f *flow) { f.to = genA - 1 }, 0, false},
		"own former claim": {func(f *flow) { f.in, f.hostport = f.out, false }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				first, second := n.clash(f, syn)
				c.change(&first)
				request, reply := first.keys()
				rows := first.rows()
				row := rows[reply]
				row.SeenNs = packet.Now() - uint64(c.age)
				packet.Put(n, n.maps.Flows, reply, row) // the request's row was evicted
				_ = request

				out := n.fromUplink(second.in)
				if c.held {
					n.otherPort(&second)
				}
				n.delivered(out, n.a, second.out.Hop())
				for key, want := range second.rows() {
					n.row(out, key, want)
				}
				n.toWire(n.fromPod(n.a, second.out.Reverse()), second.in.Reverse().Hop())
				n.notDropped()
			})
		})
	}
}

// The design's promise, 60 s after close, in a client's words: it calls hostPort and
// pod in turn from one port.
func TestPrivilegedClaimAfterClose(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		first, second := n.clash(f, syn)
		n.there(first, first.in)
		n.andBack(first, first.back(packet.RST|packet.ACK, 0, 1001))
		n.fromUplink(second.in)
		n.otherPort(&second)
		n.andBack(second, second.back(packet.RST|packet.ACK, 0, 1001))
		// The hostPort again: still its own port; and the pod again: still the other one.
		n.there(first, first.in)
		n.there(second, second.in)
		n.andBack(first, first.back(packet.SYN|packet.ACK, 7000, 1001))
		n.andBack(second, second.back(packet.SYN|packet.ACK, 7000, 1001))
		n.notDropped()
	})
}

// Every reply tuple of this client and this port of the pod is somebody else's.
func TestPrivilegedPortsExhausted(t *testing.T) {
	for _, o := range openers[:4] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				_, second := n.clash(f, o.Transport)
				n.takeAllPorts(second)
				n.dropped(n.fromUplink(second.in), n.uplink.Index, bpf.DatapathHookHOOK_FROM_UPLINK,
					bpf.DatapathDropReasonDROP_PORTS_EXHAUSTED)
			})
		})
	}
}

// takeAllPorts claims every client port for flows that came by another address.
func (n *node) takeAllPorts(fl flow) {
	n.Helper()
	var keys []bpf.DatapathTuple
	var values []bpf.DatapathFlow
	fl.in = fl.in.To(ip("203.0.113.1"), 1)
	if !fl.out.IPv4() {
		fl.in = fl.in.To(ip("2001:db8::1"), 1)
	}
	fl.seen = packet.Now()
	_, reply := fl.keys()
	row := fl.rows()[reply]
	for port := range 65536 {
		reply.Dport = uint16(port)
		keys, values = append(keys, reply), append(values, row)
	}
	count, err := n.maps.Flows.BatchUpdate(keys, values, nil)
	if err != nil || count != len(keys) {
		n.Fatalf("write %d rows: %d, %v", len(keys), count, err)
	}
}

// What begins no flow goes to the stack, and leaves no row.
func TestPrivilegedNotOpened(t *testing.T) {
	reset := ack
	reset.Flags = packet.RST | packet.ACK
	for name, tr := range map[string]packet.Transport{
		"reset": reset, "echo reply": packet.Echo{ID: 40000, Reply: true},
		"timestamp": packet.ICMP{Type: 13}, "ICMP error": packet.ICMP{Type: 3, Code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				p := between(f.client, f.a, tr).With(make([]byte, 36))
				out := n.fromUplink(p)
				n.passed(out, p)
				n.tables(out, nil, nil)
				p = between(f.b, f.a, tr).With(make([]byte, 36))
				out = n.fromPod(n.b, p)
				n.passed(out, p)
				n.tables(out, nil, nil)
				n.notDropped()
			})
		})
	}
}

// The two callers that hide behind the gateway's address, the pod itself and the host's
// loopback, are two clients: with one port they clash as any two do.
func TestPrivilegedClaimHiddenCallers(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(f.node, 80, packet.ProtoTCP, 8080)
		n.hostport(f.loopback, 80, packet.ProtoTCP, 8080)
		self, host := between(f.a, f.node, syn), between(f.loopback, f.loopback, syn)
		n.verdict(n.fromPod(n.a, self), packet.Redirect)
		n.verdict(n.fromHost(host), packet.Redirect)

		toSelf := between(f.linkEnd, f.a, syn).To(f.a, 8080)
		toSelf = toSelf.From(f.linkEnd, n.port(flow{in: self, out: self}))
		fromHost := toSelf.From(f.linkEnd, n.port(flow{in: host, out: host}))
		n.delivered(n.fromPod(n.a, answer(toSelf)), n.a, answer(self).Hop())
		n.toHost(n.fromPod(n.a, answer(fromHost)), answer(host))
		n.notDropped()
	})
}

// Somebody on the wire who says that he is a pod of this node takes nothing from it.
func TestPrivilegedClaimForgedPod(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := directAB(f, openers[2])
		n.put(n.maps.Flows, fl, time.Second/2)
		n.fromUplink(fl.in)
		n.delivered(n.fromPod(n.a, fl.in), n.b, fl.in.Hop())
		n.delivered(n.fromPod(n.b, fl.in.Reverse()), n.a, fl.in.Reverse().Hop())
		fl.seen = n.seenAt(fl)
		for key, want := range fl.rows() {
			n.row(packet.Out{}, key, want)
		}
	})
}
