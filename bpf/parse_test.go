// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/packet"
)

// I3: IP options, TCP options and IPv6 extension headers hide no port.
func TestPrivilegedParseHeaders(t *testing.T) {
	ext := func(protos ...uint8) (exts []packet.Extension) {
		for _, p := range protos {
			exts = append(exts, packet.Extension{Protocol: p, Data: packet.PadN})
		}
		return exts
	}
	ah := packet.Extension{Protocol: packet.ProtoAH, Data: make([]byte, 22)}
	long := packet.Extension{Protocol: packet.ProtoDstOpts, Data: append([]byte{1, 252}, make([]byte, 252)...)}
	for name, c := range map[string]struct {
		options []byte
		exts    []packet.Extension
	}{
		"none":                {},
		"4 bytes of options":  {options: bytes.Repeat([]byte{1}, 4)},
		"40 bytes of options": {options: bytes.Repeat([]byte{1}, 40)},
		"hop-by-hop":          {exts: ext(packet.ProtoHopOpts)},
		"destination options": {exts: ext(packet.ProtoDstOpts)},
		"routing":             {exts: ext(packet.ProtoRouting)},
		"authentication":      {exts: []packet.Extension{ah}},
		"a long one":          {exts: []packet.Extension{long}},
		"six": {exts: append(ext(packet.ProtoHopOpts, packet.ProtoDstOpts, packet.ProtoRouting, packet.ProtoDstOpts,
			packet.ProtoDstOpts), ah)},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, o := range openers[:5] {
					n.clear()
					n.hostport(anyAddr, 80, o.Protocol(true), 80)
					for _, fl := range []flow{directAB(f, o), directA(f, o)} {
						fl.in.Options, fl.in.Extensions = c.options, c.exts
						var out packet.Out
						if fl.from != 0 {
							out = n.fromPod(n.a, fl.in)
							n.delivered(out, n.b, fl.in.Hop())
						} else {
							out = n.fromUplink(fl.in)
							n.delivered(out, n.a, fl.in.Hop())
						}
						n.tables(out, fl.rows(), nil)
						n.forget()
					}
					if o.name == "echo" {
						continue
					}
					p := between(f.client, f.node, o.Transport)
					p.Options, p.Extensions = c.options, c.exts
					n.delivered(n.fromUplink(p), n.a, p.To(f.a, 80).Hop())
				}
				n.notDropped()
			})
		})
	}
}

// RFC 6946: a fragment header on a packet that is whole makes it no fragment.
func TestPrivilegedParseAtomicFragment(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		p := directAB(f, openers[2])
		out := n.run("from_pod", n.a.Device, p.in.Link(n.a.MAC, n.a.Peer).Fragments(7, 4096)[0])
		n.redirected(out)
		n.same(out.Frame, p.in.Hop().Link(n.b.Peer, n.b.MAC).Fragments(7, 4096)[0])
		n.tables(out, p.rows(), nil)
	})
}

// What is cut off or not well formed goes to the stack as it came, without a row; but a
// forged source address, once it can be read, is one.
func TestPrivilegedParseMalformed(t *testing.T) {
	option := []packet.Extension{{Protocol: packet.ProtoDstOpts, Data: packet.PadN}}
	endless := append([]packet.Extension{{Protocol: packet.ProtoDstOpts, Data: make([]byte, 510)}}, option...)
	whole := func(b []byte, _ int) []byte { return b }
	for name, c := range map[string]struct {
		transport packet.Transport
		exts      []packet.Extension
		damage    func(frame []byte, l4 int) []byte
		readable  bool // as far as the addresses
	}{
		"no header":          {udp, nil, func(b []byte, _ int) []byte { return b[:packet.EthLen+1] }, false},
		"half a header":      {udp, nil, func(b []byte, l4 int) []byte { return b[:l4-4] }, false},
		"the other version":  {udp, nil, func(b []byte, _ int) []byte { b[14] ^= 0x20; return b }, false},
		"no transport":       {udp, nil, func(b []byte, l4 int) []byte { return b[:l4] }, true},
		"half a TCP header":  {syn, nil, func(b []byte, l4 int) []byte { return b[:l4+19] }, true},
		"half a UDP header":  {udp, nil, func(b []byte, l4 int) []byte { return b[:l4+7] }, true},
		"half an SCTP one":   {openers[4].Transport, nil, func(b []byte, l4 int) []byte { return b[:l4+11] }, true},
		"half an ICMP one":   {echo, nil, func(b []byte, l4 int) []byte { return b[:l4+7] }, true},
		"no extension":       {udp, option, func(b []byte, l4 int) []byte { return b[:l4-8] }, true},
		"half an extension":  {udp, option, func(b []byte, l4 int) []byte { return b[:l4-1] }, true},
		"endless extensions": {udp, endless, whole, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				if c.exts != nil && f.node.Is4() {
					n.Skip("IPv6 alone")
				}
				damaged := func(p packet.Packet) []byte {
					p.Extensions = c.exts
					return c.damage(p.Frame(), len(p.As(packet.Raw(0)).With(nil).Frame()))
				}
				frame := damaged(between(f.a, f.b, c.transport).Link(n.a.MAC, n.a.Peer))
				out, err := n.TryRun(n, packet.In{Program: "from_pod", Device: n.a.Index, Frame: frame})
				if errors.Is(err, unix.EINVAL) && !c.readable {
					n.Skip("this kernel's BPF_PROG_TEST_RUN refuses such a packet")
				}
				if err != nil {
					n.Fatal(err)
				}
				n.verdict(out, packet.Unspec)
				n.same(out.Frame, frame)
				n.tables(out, nil, nil)
				n.notDropped()

				frame = damaged(between(f.client, f.b, c.transport).Link(n.a.MAC, n.a.Peer))
				out = n.run("from_pod", n.a.Device, frame)
				if c.readable {
					n.dropped(out, n.a.Index, fromPodHook, dropSource)
				} else {
					n.verdict(out, packet.Unspec)
				}
			})
		})
	}
}

// IPv4's header length has a lower bound.
func TestPrivilegedParseShortIHL(t *testing.T) {
	n := newNode(t)
	frame := between(v4.a, v4.b, udp).Link(n.a.MAC, n.a.Peer).Frame()
	frame[packet.EthLen] = 0x44
	out := n.run("from_pod", n.a.Device, frame)
	n.verdict(out, packet.Unspec)
	n.same(out.Frame, frame)
	n.tables(out, nil, nil)
}

// A mapped address on the wire is IPv6, and not the pod that has it in IPv4.
func TestPrivilegedParseMapped(t *testing.T) {
	n := newNode(t)
	n.hostport(anyAddr, 80, packet.ProtoUDP, 8080)
	for _, dst := range []string{"::ffff:10.1.0.2", "::ffff:192.0.2.1"} {
		p := between(v6.client, ip(dst), udp)
		out := n.fromUplink(p)
		n.passed(out, p)
		n.tables(out, nil, nil)
	}
}
