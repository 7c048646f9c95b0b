// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/packet"
)

// What conntrack knows goes on in the stack. A hostPort's SYN and datagrams are captured
// all the same, unless they are replies to what netfilter carries.
func TestPrivilegedConntrack(t *testing.T) {
	for _, o := range openers[:3] {
		for _, reply := range []bool{false, true} {
			t.Run(o.name+map[bool]string{false: " known as request", true: " known as reply"}[reply], func(t *testing.T) {
				eachFamily(t, func(n *node, f family) {
					n.hostport(netip.Addr{}, 80, o.Protocol(true), 8080)
					direct, port := between(f.client, f.a, o.Transport), between(f.client, f.node, o.Transport)
					pods := between(f.b, f.a, o.Transport)
					for _, p := range []packet.Packet{direct, port, pods} {
						if reply {
							n.Conntrack(n, p.Reverse())
						} else {
							n.Conntrack(n, p)
						}
					}
					n.passed(n.fromUplink(direct), direct)
					n.passed(n.fromPod(n.b, pods), pods)
					out := n.fromUplink(port)
					if reply || o.name == "middle" {
						n.passed(out, port)
						n.tables(out, nil, nil)
					} else {
						n.delivered(out, n.a, port.To(f.a, 8080).Hop())
					}
					n.notDropped()
				})
			})
		}
	}
}

// A live row comes before conntrack.
func TestPrivilegedConntrackAfterRow(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := directA(f, openers[2])
		n.put(n.maps.Flows, fl, 0)
		n.Conntrack(n, fl.in)
		n.delivered(n.fromUplink(fl.in), n.a, fl.in.Hop())
		n.toWire(n.fromPod(n.a, fl.in.Reverse()), fl.in.Reverse().Hop())
	})
}

// A reply tuple that conntrack holds, say of a NodePort, is not claimed.
func TestPrivilegedConntrackHoldsReply(t *testing.T) {
	for _, o := range []opener{openers[0], openers[2]} {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := n.hostportFlow(f, o.Transport)
				n.Conntrack(n, fl.out)
				out := n.fromUplink(fl.in)
				n.otherPort(&fl)
				n.delivered(out, n.a, fl.out.Hop())
				n.tables(out, fl.rows(), nil)
				n.toWire(n.fromPod(n.a, answer(fl.out)), answer(fl.in).Hop())
				n.notDropped()
			})
		})
	}
}

// A TCP packet in mid-stream that calls a hostPort belongs to the host's own connection
// from that port, if there is one; else it makes its row anew.
func TestPrivilegedHostSocket(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, ack)
		fl.state, fl.stateOut = middle, middle
		n.Listen(n, netip.AddrPortFrom(f.node, 80))
		out := n.there(fl, fl.in)
		n.tables(out, fl.rows(), nil)
		n.forget()
		n.Connect(n, netip.AddrPortFrom(f.node, 80), netip.AddrPortFrom(f.client, 40000))
		out = n.fromUplink(fl.in)
		n.passed(out, fl.in)
		n.tables(out, nil, nil)
		n.notDropped()
	})
}

// The host called the pod's own address from the port with which it now calls the
// hostPort: the pod has to see another one.
func TestPrivilegedHostSocketHoldsReply(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(netip.Addr{}, 80, packet.ProtoTCP, 8080)
		n.Connect(n, netip.AddrPortFrom(f.node, 40000), netip.AddrPortFrom(f.a, 8080))
		in := between(f.node, f.node2, syn)
		fl := flow{in: in, out: in.To(f.a, 8080), to: genA, action: toPod, reply: toHost, hostport: true}
		out := n.fromHost(fl.in)
		n.otherPort(&fl)
		n.delivered(out, n.a, fl.out)
		n.tables(out, fl.rows(), nil)
		n.toHost(n.fromPod(n.a, answer(fl.out)), answer(fl.in))
		n.notDropped()
	})
}
