// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

var anyAddr netip.Addr

// H1, H3: from outside and from another pod, by every local address of both families.
func TestPrivilegedHostport(t *testing.T) {
	for _, o := range openers[:3] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, addr := range []netip.Addr{f.node, f.node2} {
					n.clear()
					n.hostport(anyAddr, 80, o.Protocol(true), 8080)
					fl := flow{in: between(f.client, addr, o.Transport), to: genA, action: toPod, reply: toWire,
						hostport: true, state: o.state, stateOut: o.state}
					fl.out = fl.in.To(f.a, 8080)
					out := n.fromUplink(fl.in)
					n.delivered(out, n.a, fl.out.Hop())
					n.tables(out, fl.rows(), nil)
					n.toWire(n.fromPod(n.a, answer(fl.out)), answer(fl.in).Hop())

					n.forget()
					fl.in, fl.out, fl.from, fl.reply = fl.in.From(f.b, 40000), fl.out.From(f.b, 40000), genB, toPod
					out = n.fromPod(n.b, fl.in)
					n.delivered(out, n.a, fl.out.Hop())
					n.tables(out, fl.rows(), nil)
					n.delivered(n.fromPod(n.a, answer(fl.out)), n.b, answer(fl.in).Hop())
					n.notDropped()
				}
			})
		})
	}
}

// H15: SCTP, also where the pod's port is another and the CRC has to change; with padding
// behind the packet, which Ethernet adds to a short one.
func TestPrivilegedH15SCTP(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, podPort := range []uint16{80, 8080} {
			n.clear()
			n.hostport(f.node, 80, packet.ProtoSCTP, podPort)
			in := between(f.client, f.node, packet.SCTP{Src: 40000, Dst: 80})
			n.delivered(n.fromUplink(in), n.a, in.To(f.a, podPort).Hop())
			n.toWire(n.fromPod(n.a, in.To(f.a, podPort).Reverse()), in.Reverse().Hop())

			padded := append(in.Link(n.uplink.MAC, n.uplink.Peer).Frame(), make([]byte, 9)...)
			out := n.run("from_uplink", n.uplink, padded)
			n.verdict(out, packet.Redirect)
			want := in.To(f.a, podPort).Hop().Link(n.a.Peer, n.a.MAC).Frame()
			n.same(out.Frame, append(want, make([]byte, 9)...))
		}
		// A fragment's CRC is about what is not there.
		in := between(f.client, f.node, packet.SCTP{Src: 40000, Dst: 80}).With(datagram)
		first := in.Fragments(fragmentID, 1000)[0]
		out := n.arrive("from_uplink", [][]byte{first})[0]
		n.verdict(out, packet.Unspec)
		n.same(out.Frame, first)
	})
}

// H3: the pod that calls itself sees the gateway's address, and gets its own answer.
func TestPrivilegedHostportSelf(t *testing.T) {
	for _, o := range openers[:3] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				n.hostport(anyAddr, 80, o.Protocol(true), 8080)
				fl := flow{in: between(f.a, f.node, o.Transport), from: genA, to: genA, action: toPod, reply: toPod,
					hostport: true, state: o.state, stateOut: o.state}
				fl.out = fl.in.From(f.linkEnd, 40000).To(f.a, 8080)
				out := n.fromPod(n.a, fl.in)
				n.delivered(out, n.a, fl.out.Hop())
				n.tables(out, fl.rows(), nil)
				n.delivered(n.fromPod(n.a, answer(fl.out)), n.a, answer(fl.in).Hop())
				n.notDropped()
			})
		})
	}
}

// H2: the host by its loopback address, where the row allows it.
func TestPrivilegedHostportLoopback(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(anyAddr, 80, packet.ProtoTCP, 8080)
		fl := flow{in: between(f.loopback, f.loopback, syn), to: genA, action: toPod, reply: toHost, hostport: true}
		fl.out = fl.in.From(f.linkEnd, 40000).To(f.a, 8080)
		out := n.fromHost(fl.in)
		n.delivered(out, n.a, fl.out)
		n.tables(out, fl.rows(), nil)
		n.toHost(n.fromPod(n.a, answer(fl.out)), answer(fl.in))

		n.forget()
		if f.node.Is4() { // the rest of 127/8 is somebody else's
			p := between(f.loopback, ip("127.0.0.2"), syn)
			n.passed(n.fromHost(p), p)
		}
		row := n.hostportRow(8080)
		row.Flags = 0
		n.putHostport(anyAddr, 80, packet.ProtoTCP, row)
		out = n.fromHost(fl.in)
		n.passed(out, fl.in)
		n.tables(out, nil, nil)
		p := between(f.node, f.node, syn)
		n.delivered(n.fromHost(p), n.a, p.To(f.a, 8080))
		n.notDropped()
	})
}

// H5: a specific address beats the wildcard, whichever came first.
func TestPrivilegedHostportSpecific(t *testing.T) {
	for _, first := range []string{"wildcard first", "specific first"} {
		t.Run(first, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				wildcard := bpf.DatapathHostport{Pod4: packet.Addr(v4.b), Pod6: packet.Addr(v6.b), Generation: genB,
					Ifindex: uint32(n.b.Index), Port: 9090}
				if first == "wildcard first" {
					n.putHostport(anyAddr, 80, packet.ProtoUDP, wildcard)
				}
				n.hostport(f.node, 80, packet.ProtoUDP, 8080)
				if first != "wildcard first" {
					n.putHostport(anyAddr, 80, packet.ProtoUDP, wildcard)
				}
				p := between(f.client, f.node, udp)
				n.delivered(n.fromUplink(p), n.a, p.To(f.a, 8080).Hop())
				p = between(f.client, f.node2, udp)
				n.delivered(n.fromUplink(p), n.b, p.To(f.b, 9090).Hop())
				n.notDropped()
			})
		})
	}
}

// H4, H8 and what else a hostPort is not: all goes to the stack, and leaves no row.
func TestPrivilegedHostportNot(t *testing.T) {
	multicast := map[bool]netip.Addr{true: ip("224.0.0.251"), false: ip("ff05::1:3")}
	limited := map[bool]netip.Addr{true: ip("255.255.255.255"), false: ip("::")}
	for name, c := range map[string]struct {
		dst    func(f family) netip.Addr
		change func(n *node, f family, row *bpf.DatapathHostport)
	}{
		"somebody else's":     {func(f family) netip.Addr { return f.client2 }, nil},
		"a neighbour's":       {func(f family) netip.Addr { return f.gateway }, nil},
		"multicast":           {func(f family) netip.Addr { return multicast[f.node.Is4()] }, nil},
		"limited broadcast":   {func(f family) netip.Addr { return limited[f.node.Is4()] }, nil},
		"a host address gone": {func(f family) netip.Addr { return f.node2 }, func(n *node, f family, _ *bpf.DatapathHostport) { n.Unaddress(n, n.uplink, f.onLink(f.node2)) }},
		"pod of one family": {nil, func(_ *node, f family, row *bpf.DatapathHostport) {
			if f.node.Is4() {
				row.Pod4 = bpf.DatapathAddr{}
			} else {
				row.Pod6 = bpf.DatapathAddr{}
			}
		}},
		"former pod": {nil, func(_ *node, _ family, row *bpf.DatapathHostport) { row.Generation-- }},
		"no pod":     {nil, func(_ *node, _ family, row *bpf.DatapathHostport) { row.Pod4.Ip[15], row.Pod6.Ip[15] = 77, 77 }},
		"no forwarding": {nil, func(n *node, _ family, _ *bpf.DatapathHostport) {
			for _, dev := range []string{"uplink", "b"} {
				n.Sysctl(n, "ipv4/conf/"+dev+"/forwarding", "0")
				n.Sysctl(n, "ipv6/conf/"+dev+"/forwarding", "0")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				row := n.hostportRow(8080)
				if c.change != nil {
					c.change(n, f, &row)
				}
				n.putHostport(anyAddr, 80, packet.ProtoTCP, row)
				n.putHostport(anyAddr, 80, packet.ProtoUDP, row)
				dst := f.node
				if c.dst != nil {
					dst = c.dst(f)
				}
				for _, o := range openers[:3] {
					for _, src := range []netip.Addr{f.client, f.b} {
						p := between(src, dst, o.Transport)
						var out packet.Out
						if src == f.b {
							out = n.fromPod(n.b, p)
						} else {
							out = n.fromUplink(p)
						}
						n.passed(out, p)
						n.tables(out, nil, nil)
					}
				}
				n.notDropped()
			})
		})
	}
}

// The key is address, port and protocol. A pod's own port of that number is its own.
func TestPrivilegedHostportKey(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(anyAddr, 80, packet.ProtoTCP, 8080)
		for _, tr := range []packet.Transport{udp, packet.TCP{Src: 40000, Dst: 81, Flags: packet.SYN},
			packet.SCTP{Src: 40000, Dst: 80}, echo, packet.Raw(packet.ProtoGRE)} {
			p := between(f.client, f.node, tr)
			out := n.fromUplink(p)
			n.passed(out, p)
			n.tables(out, nil, nil)
		}
		p := between(f.client, f.b, syn)
		n.delivered(n.fromUplink(p), n.b, p.Hop())
		p = between(f.a, f.b, syn)
		n.delivered(n.fromPod(n.a, p), n.b, p.Hop())
		n.notDropped()
	})
}

// A frame on the uplink that is for somebody else is not looked at.
func TestPrivilegedHostportOtherHost(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(anyAddr, 80, packet.ProtoUDP, 8080)
		for _, mac := range []packet.MAC{{2, 0, 0, 0, 0, 9}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
			frame := between(f.client, f.node, udp).Link(mac, n.uplink.Peer).Frame()
			out := n.run("from_uplink", n.uplink, frame)
			n.verdict(out, packet.Unspec)
			n.same(out.Frame, frame)
			n.tables(out, nil, nil)
		}
	})
}

// A guard: the answer to what the stack sent from a hostPort's number is the stack's.
func TestPrivilegedHostportNumberOfHost(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(anyAddr, 53, packet.ProtoUDP, 8080)
		query := between(f.node, f.client, udp).From(f.node, 53)
		n.passed(n.toUplink(query), query)
		n.passed(n.fromUplink(query.Reverse()), query.Reverse())
		// Another client's call is one.
		call := between(f.client2, f.node, packet.UDP{Src: 80, Dst: 53})
		n.delivered(n.fromUplink(call), n.a, call.To(f.a, 8080).Hop())
		n.notDropped()
	})
}
