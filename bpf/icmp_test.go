// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/packet"
)

// about is an ICMP error that quotes so many bytes of a packet's transport header and
// payload, or all of it.
func about(from, to netip.Addr, p packet.Packet, bytes int) packet.Packet {
	kind := packet.ICMP{Type: 3, Code: 3}
	if !p.IPv4() {
		kind = packet.ICMP{Type: 1, Code: 4}
	}
	quote := p.Frame()[packet.EthLen:]
	if header := len(quote) - len(p.Payload) - transportLen(p); header+bytes < len(quote) {
		quote = quote[:header+bytes]
	}
	return packet.Packet{Src: from, Dst: to, Transport: kind, Payload: append(make([]byte, 4), quote...)}
}

func transportLen(p packet.Packet) int {
	switch t := p.Transport.(type) {
	case packet.TCP:
		return 20 + len(t.Options)
	case packet.SCTP:
		return 12
	}
	return 8
}

// eachQuotation runs a test with what an error may be about, 8 bytes of it and all.
func eachQuotation(t *testing.T, run func(n *node, f family, o opener, bytes int)) {
	for _, o := range append([]opener{{"unsummed", packet.UDP{Src: 40000, Dst: 80, NoChecksum: true}, 0}}, openers[:5]...) {
		for _, bytes := range []int{8, 1 << 16} {
			if o.name == "sctp" && bytes > 8 {
				continue // who reads a quoted CRC?
			}
			t.Run(fmt.Sprintf("%s/%d", o.name, bytes), func(t *testing.T) {
				eachFamily(t, func(n *node, f family) { run(n, f, o, bytes) })
			})
		}
	}
}

// I1: about what a hostPort's pod sent: the pod reads of the packet that it sent.
func TestPrivilegedI1Hostport(t *testing.T) {
	eachQuotation(t, func(n *node, f family, o opener, bytes int) {
		if _, ok := o.Transport.(packet.Echo); ok {
			return // no hostPort
		}
		fl := n.hostportFlow(f, o.Transport)
		n.put(n.maps.Flows, fl, 0)
		sent, left := fl.out.Reverse(), fl.in.Reverse()
		for _, from := range []netip.Addr{f.gateway, f.client} {
			out := n.fromUplink(about(from, f.node, left, bytes))
			n.delivered(out, n.a, about(from, f.a, sent, bytes).Hop())
		}
		// And the other way: about what the pod was sent.
		out := n.fromPod(n.a, about(f.a, f.client, fl.out, bytes))
		n.toWire(out, about(f.node, f.client, fl.in, bytes).Hop())
		n.notDropped()
	})
}

// I1: about a direct flow, by the same way as its packets: netfilter has not seen them.
func TestPrivilegedI1Direct(t *testing.T) {
	eachQuotation(t, func(n *node, f family, o opener, bytes int) {
		fl := directA(f, o)
		n.put(n.maps.Flows, fl, 0)
		err := about(f.gateway, f.a, fl.in.Reverse(), bytes)
		n.delivered(n.fromUplink(err), n.a, err.Hop())
		err = about(f.a, f.client, fl.in, bytes)
		n.toWire(n.fromPod(n.a, err), err.Hop())

		n.forget()
		fl = directAB(f, o)
		n.put(n.maps.Flows, fl, 0)
		err = about(f.b, f.a, fl.in, bytes)
		n.delivered(n.fromPod(n.b, err), n.a, err.Hop())
		n.notDropped()
	})
}

// I1, F2: about a masqueraded packet: the stack gets it, about what the pod sent.
func TestPrivilegedI1Masquerade(t *testing.T) {
	eachQuotation(t, func(n *node, f family, o opener, bytes int) {
		n.masks(4)
		fl := n.masked(f, o)
		n.leaves(&fl)
		n.passed(n.fromUplink(about(f.gateway, fl.out.Src, fl.out, bytes)), about(f.gateway, f.a, fl.in, bytes))
		// The pod refuses the answer.
		err := about(f.a, f.client, answer(fl.in), bytes)
		n.passed(n.toUplink(err), about(fl.out.Src, f.client, answer(fl.out), bytes))
		n.notDropped()
	})
}

// I1: the stack's own errors about what the fast path gave it translated.
func TestPrivilegedI1Stack(t *testing.T) {
	eachQuotation(t, func(n *node, f family, o opener, bytes int) {
		if _, ok := o.Transport.(packet.Echo); ok {
			return
		}
		fl := n.hostportFlow(f, o.Transport)
		n.put(n.maps.Flows, fl, 0)
		n.passed(n.toUplink(about(f.node, f.client, fl.out, bytes)), about(f.node, f.client, fl.in, bytes))

		fl = flow{in: between(f.b, f.node, o.Transport), from: genB, to: genA, action: toPod, reply: toPod, hostport: true}
		fl.out = fl.in.To(f.a, 8080)
		n.put(n.maps.Flows, fl, 0)
		n.passed(n.toPod(n.b, about(f.node, f.b, fl.out, bytes)), about(f.node, f.b, fl.in, bytes))
		n.notDropped()
	})
}

// An error about nothing that is known is the stack's, and so is one that cannot be read.
func TestPrivilegedI1Unknown(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		n.put(n.maps.Flows, fl, 0)
		good := about(f.gateway, f.node, fl.in.Reverse(), 8)
		stranger := about(f.gateway, f.node, fl.in.Reverse().To(f.client2, 40000), 8)
		other := good.As(packet.ICMP{Type: 13})
		cut := good.With(good.Payload[:len(good.Payload)-1])
		headless := good.With(good.Payload[:10])
		later := good.With(append([]byte{}, good.Payload...))
		if f.node.Is4() {
			later.Payload[4+7] = 1 // offset
		} else {
			later.Payload[4+6] = packet.ProtoFragment
		}
		old := good.Lives(1)
		for name, p := range map[string]packet.Packet{"stranger": stranger, "no error": other, "cut": cut, "headless": headless,
			"later fragment": later, "last hop": old} {
			out := n.fromUplink(p)
			if out.Verdict != packet.Unspec {
				n.Errorf("%s: verdict %d", name, out.Verdict)
			}
			n.passed(out, p)
		}
		// A pod that is not the flow's may say what it will.
		err := about(f.b, f.client, fl.out, 8)
		n.passed(n.fromPod(n.b, err), err)
		n.notDropped()
	})
}

// I1: extension headers and options before the quoted transport header.
func TestPrivilegedI1Options(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		n.put(n.maps.Flows, fl, 0)
		sent, left := fl.out.Reverse(), fl.in.Reverse()
		for _, p := range []*packet.Packet{&sent, &left} {
			if f.node.Is4() {
				p.Options = []byte{1, 1, 1, 0}
			} else {
				p.Extensions = []packet.Extension{{Protocol: packet.ProtoHopOpts, Data: []byte{1, 4, 0, 0, 0, 0}}}
			}
		}
		n.delivered(n.fromUplink(about(f.gateway, f.node, left, 1<<16)), n.a, about(f.gateway, f.a, sent, 1<<16).Hop())
		n.notDropped()
	})
}
