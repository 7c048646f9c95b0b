// SPDX-License-Identifier: Apache-2.0

package model

import "encoding/binary"

// sum adds up 16-bit words in one's complement arithmetic (RFC 1071).
func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return s
}

// covered is a checksum field and all that it covers.
type covered struct {
	at     int // offset of the field
	lo, hi int // offsets of what is covered
	pseudo uint32
	udp    bool
}

// state is how right a checksum is.
type state struct {
	total uint32 // of what is covered and the field: 0xffff is right
	exact bool   // the field is the number that a sender writes, of two that are equal
}

func (c covered) state(b []byte) state {
	field := uint32(b[c.at])<<8 | uint32(b[c.at+1])
	total := sum(c.pseudo, b[c.lo:c.hi])
	if total != 0xffff {
		return state{total, false}
	}
	return state{total, c.field(b, 0xffff) == field}
}

// field is the number that gives the total.
func (c covered) field(b []byte, total uint32) uint32 {
	was := [2]byte(b[c.at:])
	b[c.at], b[c.at+1] = 0, 0
	field := 0xffff - sum(c.pseudo, b[c.lo:c.hi])
	copy(b[c.at:], was[:])
	if total != 0xffff {
		field = sum(field+total, nil)
	}
	if c.udp && field == 0 {
		return 0xffff
	}
	return field
}

// seal writes the checksum that makes the state what it was: what was right is right,
// and what was wrong is as wrong.
func (c covered) seal(b []byte, was state) {
	binary.BigEndian.PutUint16(b[c.at:], uint16(c.field(b, was.total)))
}

// headerSum is that of an IPv4 header.
func (v *view) headerSum(b []byte) covered {
	return covered{at: ethernet + 10, lo: ethernet, hi: min(v.l4, len(b))}
}

// transportSum is that of the transport header; false: there is none.
func (v *view) transportSum(b []byte) (covered, bool) {
	field := 0
	switch {
	case v.Proto == tcp:
		field = 16
	case v.Proto == udp && !v.unsummed:
		field = 6
	case v.icmp():
		field = 2
	}
	if field == 0 || v.kind == later || v.l4+field+2 > len(b) {
		return covered{}, false
	}
	c := covered{at: v.l4 + field, lo: v.l4, hi: len(b), udp: v.Proto == udp}
	if v.Proto == icmp4 {
		return c, true
	}
	c.pseudo = uint32(v.Proto) + uint32(c.hi-c.lo)
	if v.v6 {
		c.pseudo = sum(c.pseudo, b[ethernet+8:ethernet+40])
	} else {
		c.pseudo = sum(c.pseudo, b[ethernet+12:ethernet+20])
	}
	return c, true
}

// rewrite makes the frame say what the row says. It tells where the checksums are that
// were not exact.
func (v *view) rewrite(b []byte, r *Row, hop bool) (loose [4]int) {
	if v.stuck(r) {
		return loose
	}
	wrong, counted := v.wrongCRC(b, r)
	if counted {
		defer func() { v.sealCRC(b, wrong) }()
	}
	var transport state
	c, summed := v.transportSum(b)
	if summed {
		transport = c.state(b)
	}
	v.writeNetworkSealed(b, r, hop, &loose)
	if v.kind != later && !v.unreadable {
		v.writePorts(b, r)
	}
	if !summed {
		return loose
	}
	c, _ = v.transportSum(b)
	c.seal(b, transport)
	// ICMP over IPv4 without pseudo-header may be all zeroes: differences end at 0 there,
	// where the sum from nothing is 0xffff (RFC 1624 section 3). Netfilter does no better.
	// UDP's sum has one spelling.
	if zeroes := b[c.at]&b[c.at+1] == 0xff; !c.udp && (!transport.exact || zeroes) {
		loose[1] = c.at
	}
	return loose
}

// writeNetworkSealed writes the network header with its checksum.
func (v *view) writeNetworkSealed(b []byte, r *Row, hop bool, loose *[4]int) {
	if v.v6 {
		v.writeNetwork(b, r, hop)
		return
	}
	header := v.headerSum(b).state(b)
	v.writeNetwork(b, r, hop)
	v.headerSum(b).seal(b, header)
	if !header.exact {
		loose[0] = ethernet + 10
	}
}

func (v *view) writeNetwork(b []byte, r *Row, hop bool) {
	ip, ttl := b[ethernet:], 8
	if v.v6 {
		ttl = 7
		copy(ip[8:24], r.Src[:])
		copy(ip[24:40], r.Dst[:])
	} else {
		copy(ip[12:16], r.Src[12:])
		copy(ip[16:20], r.Dst[12:])
	}
	if hop {
		ip[ttl]--
	}
}

func (v *view) writePorts(b []byte, r *Row) {
	switch {
	case v.icmp(): // one of the two is 0
		binary.BigEndian.PutUint16(b[v.l4+4:], r.Sport|r.Dport)
	case v.Proto == tcp || v.Proto == udp || v.Proto == sctp:
		binary.BigEndian.PutUint16(b[v.l4:], r.Sport)
		binary.BigEndian.PutUint16(b[v.l4+2:], r.Dport)
	}
}
