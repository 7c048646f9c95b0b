// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// tunnel makes the client's range one behind the tunnel, whose device (the uplink stands for it)
// has the node's address, and the router's, as if that were of an earlier range. It gives the former.
func (n *node) tunnel(f family, ports uint16) netip.Addr {
	n.Helper()
	n.masks(ports)
	config, _ := packet.Get[bpf.DatapathNodeConfig](n, n.maps.Config, uint32(0))
	config.Uplinks[1] = bpf.DatapathUplink{Ifindex: uint32(n.uplink.Index), Addr4: packet.Addr(v4.gateway), Addr6: packet.Addr(v6.gateway)}
	packet.Put(n, n.maps.Config, uint32(0), config)
	n.remote(f.client, 24, remoteTunnel, f.gateway)
	return n.address(f)
}

// strange is what the far end does not take from the node: another address of the node's.
func (n *node) strange(f family, o opener) flow {
	n.Helper()
	src := f.node
	if n.address(f) == src {
		src = f.node2
	}
	in := between(src, f.client, o.Transport)
	return flow{in: in, out: in, action: toStack, reply: toStack, state: o.state, stateOut: o.state, side: sideWire, masked: true}
}

// What is no pod's and has another source than the tunnel's leaves with that and a number of the
// pool, and what comes back is given to the stack as the answer to what it sent.
func TestPrivilegedToTunnelStrange(t *testing.T) {
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				own := n.tunnel(f, 4)
				fl := n.strange(f, o)
				out := n.leavesBy(&fl, n.toTunnel)
				if fl.out.Src != own {
					n.Errorf("source %s, the tunnel's is %s", fl.out.Src, own)
				}
				if p := port(fl.out); o.name != "gre" && o.name != "middle" && (p < poolFirst || p > poolFirst+3) {
					n.Errorf("port %d is none of the pool", p)
				}
				n.tables(out, fl.rows(), nil)
				n.passed(n.fromUplink(answer(fl.out)), answer(fl.in)) // from_tunnel does the same, behind tunnel_source
				n.tunneled(n.toTunnel(fl.in), fl.out)
				n.notDropped()
			})
		})
	}
}

// The tunnel's own addresses stay, a pod's and answers to who called another address of the node.
func TestPrivilegedToTunnelKnown(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		own := n.tunnel(f, 4)
		stays := func(p packet.Packet) {
			n.Helper()
			n.tunneled(n.toTunnel(p), p)
			n.tables(packet.Out{}, nil, nil)
		}
		for _, o := range openers {
			for _, src := range []netip.Addr{own, f.gateway, f.a} {
				stays(between(src, f.client, o.Transport))
			}
		}
		fl := n.strange(f, openers[2])
		stays(fl.in.As(packet.Echo{ID: 7, Reply: true}))
		n.Conntrack(n, fl.in.Reverse())
		stays(fl.in)
		n.notDropped()
	})
}

// The node's own call from the tunnel's address and a number of the pool gets another one where a
// stranger's has that, and where it has begun before, the stranger's does.
func TestPrivilegedToTunnelMeets(t *testing.T) {
	for _, o := range []opener{openers[0], openers[2]} {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				own := n.tunnel(f, 2)
				fl := n.strange(f, o)
				fl.in = fl.in.From(fl.in.Src, poolFirst)
				n.leavesBy(&fl, n.toTunnel)
				direct := n.strange(f, o)
				direct.in = direct.in.From(own, poolFirst)
				n.leavesBy(&direct, n.toTunnel)
				if port(fl.out) != poolFirst || direct.out.Src != own || port(direct.out) != poolFirst+1 {
					n.Errorf("left as %+v and %s %+v", fl.out.Transport, direct.out.Src, direct.out.Transport)
				}
				n.passed(n.fromUplink(answer(direct.out)), answer(direct.in))
				n.passed(n.fromUplink(answer(fl.out)), answer(fl.in))

				n.clear()
				n.tunnel(f, 2)
				n.Conntrack(n, direct.in)
				n.tunneled(n.toTunnel(direct.in), direct.in)
				n.leavesBy(&fl, n.toTunnel)
				if port(fl.out) != poolFirst+1 {
					n.Errorf("port %d is another's", port(fl.out))
				}
				n.notDropped()
			})
		})
	}
}

// A stranger's datagram stays whole: its later fragments follow the first.
func TestPrivilegedToTunnelStrangeFragments(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		own := n.tunnel(f, 1)
		fl := n.strange(f, openers[2])
		left := fl.in.From(own, poolFirst).With(datagram).Fragments(fragmentID, 1000)
		for i, frame := range fl.in.With(datagram).Fragments(fragmentID, 1000) {
			out := n.run("to_tunnel", n.uplink, frame)
			n.verdict(out, packet.Unspec)
			n.same(out.Frame[packet.EthLen:], left[i][packet.EthLen:])
		}
		n.notDropped()
		last := fl.in.With(datagram).Fragments(fragmentID+1, 1000)
		n.dropped(n.run("to_tunnel", n.uplink, last[len(last)-1]), n.uplink.Index, toTunnelHook, dropFragmentOrder)
	})
}

// I1: errors about a stranger's packets are about what he sent, and his, and those of who is before
// him, are about what the far end sent, with a source that it takes.
func TestPrivilegedI1Strange(t *testing.T) {
	eachQuotation(t, func(n *node, f family, o opener, bytes int) {
		own := n.tunnel(f, 4)
		fl := n.strange(f, o)
		n.leavesBy(&fl, n.toTunnel)
		n.passed(n.fromUplink(about(f.client, own, fl.out, bytes)), about(f.client, fl.in.Src, fl.in, bytes))
		for _, from := range []netip.Addr{fl.in.Src, f.client2, own} {
			n.tunneled(n.toTunnel(about(from, f.client, answer(fl.in), bytes)), about(own, f.client, answer(fl.out), bytes))
		}
		n.notDropped()
	})
}
