// SPDX-License-Identifier: Apache-2.0

package model

import "encoding/binary"

// Numbers of the wire.
const (
	ethernet   = 14
	ethIPv4    = 0x0800
	ethIPv6    = 0x86dd
	hopByHop   = 0
	icmp4      = 1
	tcp        = 6
	udp        = 17
	routing    = 43
	fragment6  = 44
	auth       = 51
	icmp6      = 58
	destOpts   = 60
	sctp       = 132
	fin        = 0x01
	syn        = 0x02
	rst        = 0x04
	ack        = 0x10
	extensions = 6   // IPv6 headers before the transport's that are looked at
	farthest   = 512 // where a header may begin
)

type fragmentKind uint8

const (
	whole fragmentKind = iota
	first
	later
)

// view is a packet as it was understood.
type view struct {
	Tuple
	v6         bool
	base       int // where in the frame its offsets begin
	ttl        uint8
	l4         int // offset of the transport header
	headers    int // bytes of network and transport header, as the headers say
	kind       fragmentKind
	id         uint32 // of the datagram
	flags      uint8  // TCP
	seq, ack   uint32
	icmpType   uint8
	unsummed   bool // UDP without a checksum
	strange    bool // into a tunnel, from a source that the far end does not take
	unreadable bool // begins no flow and belongs to none: cut off, mapped, ICMP but echo
	hint       uint16
	closed     *Row // of the lasting flow that this SYN begins anew
	anyCRC     int  // see Out.Any
}

// parse understands a frame; false: it is no IP packet that anybody could.
func parse(b []byte) (v view, ok bool) {
	if len(b) < ethernet {
		return v, false
	}
	switch binary.BigEndian.Uint16(b[12:]) {
	case ethIPv4:
		ok = v.parse4(b)
	case ethIPv6:
		ok = v.parse6(b)
	}
	if !ok {
		return v, false
	}
	v.headers = v.l4 - ethernet
	if v.kind != later && !v.unreadable {
		v.unreadable = !v.transport(b)
	}
	return v, true
}

func (v *view) parse4(b []byte) bool {
	if len(b) < ethernet+20 {
		return false
	}
	ip := b[ethernet:]
	if ip[0]>>4 != 4 || ip[0]&0xf < 5 {
		return false
	}
	v.Src, v.Dst = mapped(ip[12:16]), mapped(ip[16:20])
	v.ttl, v.Proto, v.l4 = ip[8], ip[9], ethernet+int(ip[0]&0xf)*4
	switch where := binary.BigEndian.Uint16(ip[6:]); {
	case where&0x1fff != 0:
		v.kind = later
	case where&0x2000 != 0:
		v.kind = first
	}
	if v.kind != whole {
		v.id = uint32(binary.BigEndian.Uint16(ip[4:]))
	}
	return true
}

func mapped(b []byte) Addr {
	return Addr{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}

func (v *view) parse6(b []byte) bool {
	if len(b) < ethernet+40 || b[ethernet]>>4 != 6 {
		return false
	}
	ip := b[ethernet:]
	v.v6, v.Src, v.Dst = true, Addr(ip[8:24]), Addr(ip[24:40])
	v.ttl, v.Proto, v.l4 = ip[7], ip[6], ethernet+40
	// A mapped address on the wire is nobody's, and must not be taken for IPv4's.
	v.unreadable = v.Src.v4() || v.Dst.v4()
	for range extensions {
		if !extension(v.Proto) || v.kind == later {
			break
		}
		if v.base+v.l4 > farthest || v.l4+8 > len(b) {
			v.unreadable = true
			break
		}
		v.extension(b[v.l4:])
	}
	// The transport's header may be further away than we look.
	v.unreadable = v.unreadable || extension(v.Proto) && v.kind != later
	return true
}

func extension(proto uint8) bool {
	switch proto {
	case hopByHop, routing, destOpts, fragment6, auth:
		return true
	}
	return false
}

// extension steps over one header.
func (v *view) extension(h []byte) {
	length := 8 + int(h[1])*8
	switch v.Proto {
	case auth:
		length = 8 + int(h[1])*4
	case fragment6:
		length = 8
		where := binary.BigEndian.Uint16(h[2:])
		if where&0xfff9 != 0 { // else RFC 6946: the packet is whole
			v.kind, v.id = first, binary.BigEndian.Uint32(h[4:])
		}
		if where&0xfff8 != 0 {
			v.kind = later
		}
	}
	v.Proto = h[0]
	v.l4 += length
}

// transport reads the transport header; false: it is cut off, or there is no flow in it.
func (v *view) transport(b []byte) bool {
	need := 0
	switch {
	case v.Proto == tcp:
		need = 20
	case v.Proto == udp || v.icmp():
		need = 8
	case v.Proto == sctp:
		need = 12
	default:
		return true
	}
	if v.l4 > farthest || v.l4+need > len(b) {
		return false
	}
	h := b[v.l4:]
	if v.icmp() {
		return v.icmpHeader(h)
	}
	v.Sport, v.Dport = binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])
	v.headers += need
	switch v.Proto {
	case tcp:
		v.seq, v.ack, v.flags = binary.BigEndian.Uint32(h[4:]), binary.BigEndian.Uint32(h[8:]), h[13]
		v.headers += int(h[12]>>4)*4 - need
	case udp:
		v.unsummed = h[6] == 0 && h[7] == 0
	}
	return true
}

func (v *view) icmp() bool { return v.Proto == icmp4 && !v.v6 || v.Proto == icmp6 && v.v6 }

// icmpHeader: an echo's identifier stands for the port of the side that asks.
func (v *view) icmpHeader(h []byte) bool {
	v.icmpType = h[0]
	id := binary.BigEndian.Uint16(h[4:])
	switch {
	case v.message(8, 128):
		v.Sport = id
	case v.message(0, 129):
		v.Dport = id
	default:
		return false
	}
	return true
}

// message: is it ICMP of this type in its family?
func (v *view) message(type4, type6 uint8) bool {
	if v.v6 {
		return v.icmp() && v.icmpType == type6
	}
	return v.icmp() && v.icmpType == type4
}

func (v *view) syn() bool { return v.Proto == tcp && v.flags&(syn|ack) == syn }

// echoReply: the later fragments of one are known by the port that they got from the first.
func (v *view) echoReply() bool {
	return v.message(0, 129) || v.icmp() && v.kind == later && v.Dport != 0
}

// quotes: is it an ICMP error, which quotes the packet that it is about?
func (v *view) quotes() bool {
	if v.v6 {
		return v.icmp() && v.icmpType >= 1 && v.icmpType <= 4
	}
	return v.icmp() && (v.icmpType == 3 || v.icmpType == 4 || v.icmpType == 11 || v.icmpType == 12)
}

// changeable: may the client's port be another towards the pod?
func (v *view) changeable() bool {
	return v.Proto == tcp || v.Proto == udp || v.Proto == sctp || v.icmp()
}
