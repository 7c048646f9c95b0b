// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"

	"github.com/culvert-cni/culvert/bpf"
)

// What Ethernet calls the two families.
const (
	EthIPv4 = 0x0800
	EthIPv6 = 0x86dd
)

// EthLen is the length of an Ethernet header.
const EthLen = 14

// MAC is an Ethernet address; it compares, as net.HardwareAddr does not.
type MAC [6]byte

// Packet says what a frame holds. Its addresses decide the family; lengths and
// checksums are Frame's affair.
type Packet struct {
	DstMAC, SrcMAC MAC
	Src, Dst       netip.Addr
	TTL            uint8       // hop limit; 0 stands for 64
	Options        []byte      // IPv4: a multiple of 4 bytes, at most 40
	Extensions     []Extension // IPv6: before the fragment header, if there is one
	Inner          []Extension // IPv6: after it, part of what is cut into fragments
	Transport      Transport
	Payload        []byte
}

// Frame returns the packet in one piece.
func (p Packet) Frame() []byte { return p.frame(p.segment(), fragmentHeader{}) }

// IPv4 tells the family.
func (p Packet) IPv4() bool { return p.Dst.Is4() }

// From returns the packet with another source.
func (p Packet) From(a netip.Addr, port uint16) Packet {
	_, dst := p.Transport.Ports()
	p.Src, p.Transport = a, p.Transport.WithPorts(port, dst)
	return p
}

// To returns the packet with another destination.
func (p Packet) To(a netip.Addr, port uint16) Packet {
	src, _ := p.Transport.Ports()
	p.Dst, p.Transport = a, p.Transport.WithPorts(src, port)
	return p
}

// As returns the packet with another transport header.
func (p Packet) As(t Transport) Packet {
	p.Transport = t
	return p
}

// With returns the packet with another payload.
func (p Packet) With(payload []byte) Packet {
	p.Payload = payload
	return p
}

// Lives returns the packet with another TTL.
func (p Packet) Lives(ttl uint8) Packet {
	p.TTL = ttl
	return p
}

// Hop returns the packet as one router further sees it.
func (p Packet) Hop() Packet { return p.Lives(p.ttl() - 1) }

// Link returns the packet with other Ethernet addresses.
func (p Packet) Link(dst, src MAC) Packet {
	p.DstMAC, p.SrcMAC = dst, src
	return p
}

// Reverse returns an answer to the packet: addresses and ports change places, an echo
// request becomes its reply.
func (p Packet) Reverse() Packet {
	p.DstMAC, p.SrcMAC = p.SrcMAC, p.DstMAC
	p.Src, p.Dst = p.Dst, p.Src
	src, dst := p.Transport.Ports()
	if e, ok := p.Transport.(Echo); ok {
		p.Transport = Echo{ID: e.ID, Seq: e.Seq, Reply: !e.Reply}
	} else {
		p.Transport = p.Transport.WithPorts(dst, src)
	}
	return p
}

// Tuple is the key under which the datapath should file the packet.
func (p Packet) Tuple() bpf.DatapathTuple {
	sport, dport := p.Transport.Ports()
	return bpf.DatapathTuple{Src: Addr(p.Src), Dst: Addr(p.Dst), Sport: sport, Dport: dport,
		Proto: p.Transport.Protocol(p.IPv4())}
}

// Addr is an address as the maps' keys hold it: 16 bytes, IPv4 mapped.
func Addr(a netip.Addr) bpf.DatapathAddr { return bpf.DatapathAddr{Ip: a.As16()} }

func (p Packet) ttl() uint8 {
	if p.TTL == 0 {
		return 64
	}
	return p.TTL
}

// segment is the transport header and payload, with the checksum that covers them.
func (p Packet) segment() []byte {
	seg, at := p.Transport.marshal(p.IPv4(), p.Payload)
	if at >= 0 {
		binary.BigEndian.PutUint16(seg[at:], p.Transport.seal(Checksum(seg, p.pseudo(len(seg)))))
	}
	if p.IPv4() {
		return seg
	}
	inner, _ := link6(p.Inner, p.Transport.Protocol(false))
	return append(inner, seg...)
}

// pseudo is the sum of the pseudo-header, which ICMP over IPv4 does without.
func (p Packet) pseudo(length int) uint32 {
	proto := p.Transport.Protocol(p.IPv4())
	if proto == ProtoICMP {
		return 0
	}
	sum := add(add(0, p.Src.AsSlice()), p.Dst.AsSlice())
	return sum + uint32(length>>16) + uint32(length&0xffff) + uint32(proto)
}

// frame puts the link and network headers before body, which is all of the segment or
// a piece of it.
func (p Packet) frame(body []byte, f fragmentHeader) []byte {
	b := append(append([]byte{}, p.DstMAC[:]...), p.SrcMAC[:]...)
	if p.IPv4() {
		b = binary.BigEndian.AppendUint16(b, EthIPv4)
		return append(append(b, p.header4(len(body), f)...), body...)
	}
	b = binary.BigEndian.AppendUint16(b, EthIPv6)
	return append(append(b, p.header6(len(body), f)...), body...)
}

func (p Packet) header4(length int, f fragmentHeader) []byte {
	h := make([]byte, 20, 60)
	h = append(h, p.Options...)
	h[0] = 0x40 | byte(len(h)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+length))
	binary.BigEndian.PutUint16(h[4:], uint16(f.id))
	binary.BigEndian.PutUint16(h[6:], uint16(f.offset/8)|f.moreBit(0x2000))
	h[8], h[9] = p.ttl(), p.Transport.Protocol(true)
	copy(h[12:], p.Src.AsSlice())
	copy(h[16:], p.Dst.AsSlice())
	binary.BigEndian.PutUint16(h[10:], Checksum(h, 0))
	return h
}

func (p Packet) header6(length int, f fragmentHeader) []byte {
	exts := p.Extensions
	if f.present {
		exts = append(append([]Extension{}, exts...), f.extension())
	}
	_, first := link6(p.Inner, p.Transport.Protocol(false))
	linked, first := link6(exts, first)
	h := make([]byte, 40, 40+len(linked))
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(linked)+length))
	h[6], h[7] = first, p.ttl()
	copy(h[8:], p.Src.AsSlice())
	copy(h[24:], p.Dst.AsSlice())
	return append(h, linked...)
}
