// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// build writes the frame of a packet with this tuple, or of what follows its first
// fragment.
func (m *maker) build(at place, goesOn bool) {
	v4 := netip.AddrFrom16(at.Src).Is4In6() && netip.AddrFrom16(at.Dst).Is4In6() && !m.chance(1)
	m.frame = m.frame[:0]
	mac := at.device.MAC
	if at.hook == model.FromUplink && m.chance(3) {
		mac[5] ^= 1
	}
	m.frame = append(append(m.frame, mac[:]...), at.device.Peer[:]...)
	if m.chance(1) {
		m.frame[6+m.IntN(6)] ^= 1
	}
	if at.hook == model.FromPod && !v4 && m.chance(2) {
		m.solicit(at)
		return
	}
	cut := m.cut()
	if goesOn {
		cut = piece{header: true, offset: uint16(1 + m.IntN(100)), more: m.chance(50), id: m.id}
	} else if cut.header && cut.offset == 0 {
		m.begun, m.id = &at, cut.id
	}
	if v4 {
		m.ipv4(at, cut)
	} else {
		m.ipv6(at, cut)
	}
	l4 := len(m.frame)
	if cut.offset > 0 {
		m.bytes(m.size())
	} else {
		m.transport(at.Tuple, v4)
	}
	m.finish(at.Tuple, v4, l4)
	m.damage(map[bool]int{true: packet.EthLen + 20, false: packet.EthLen + 40}[v4])
}

// piece says which part of a datagram the packet is.
type piece struct {
	header bool
	offset uint16 // in units of 8 bytes
	more   bool
	id     uint32
}

func (m *maker) cut() piece {
	if !m.chance(12) {
		return piece{}
	}
	c := piece{header: true, id: uint32(m.IntN(4)), more: m.chance(70)}
	if m.chance(60) {
		c.offset = uint16(1 + m.IntN(100))
	}
	return c
}

func (m *maker) size() int {
	switch n := m.IntN(100); {
	case n < 70:
		return m.IntN(24)
	case n < 95:
		return m.IntN(120)
	default:
		return 500 + m.IntN(1000)
	}
}

func (m *maker) ttl() uint8 {
	if m.chance(80) {
		return 64
	}
	return pick[uint8](m, 0, 1, 2, 255)
}

func (m *maker) ipv4(at place, c piece) {
	options := 0
	if m.chance(15) {
		options = 4 * m.IntN(11)
	}
	where := c.offset
	if c.more {
		where |= 0x2000
	} else if m.chance(30) {
		where |= 0x4000 // don't fragment
	}
	m.words(packet.EthIPv4, 0x4500+uint16(options/4)<<8, 0, uint16(c.id), where)
	m.frame = append(m.frame, m.ttl(), at.Proto, 0, 0)
	m.frame = append(append(m.frame, at.Src[12:]...), at.Dst[12:]...)
	m.bytes(options)
}

func (m *maker) ipv6(at place, c piece) {
	m.words(packet.EthIPv6, 0x6000|uint16(m.IntN(256)), uint16(m.Uint32()), 0)
	next := len(m.frame) // where the number of the next header goes
	m.frame = append(m.frame, 0, m.ttl())
	m.frame = append(append(m.frame, at.Src[:]...), at.Dst[:]...)
	if m.chance(20) {
		next = m.extensions(next, 1+m.IntN(7))
	}
	if c.header {
		where := c.offset << 3
		if c.more {
			where |= 1
		}
		m.frame[next], next = packet.ProtoFragment, len(m.frame)
		m.words(uint16(m.IntN(256)), where, uint16(c.id>>16), uint16(c.id))
		if m.chance(15) {
			next = m.extensions(next, 1)
		}
	}
	m.frame[next] = at.Proto
}

func (m *maker) extensions(next, count int) int {
	for i := range count {
		m.frame[next] = pick[uint8](m, packet.ProtoHopOpts, packet.ProtoRouting, packet.ProtoDstOpts, packet.ProtoAH)
		unit, units := 8, m.IntN(3)
		if m.frame[next] == packet.ProtoAH {
			unit = 4
		}
		if i == 0 && m.chance(3) {
			units = m.IntN(128)
		}
		next = len(m.frame)
		m.frame = append(m.frame, 0, byte(units))
		m.bytes(6 + unit*units)
	}
	return next
}

// transport writes the transport header and a payload.
func (m *maker) transport(t model.Tuple, v4 bool) {
	switch {
	case t.Proto == packet.ProtoTCP:
		m.tcp(t)
	case t.Proto == packet.ProtoUDP:
		size := m.size()
		m.words(t.Sport, t.Dport, uint16(8+size), 0)
		m.bytes(size)
		return
	case t.Proto == packet.ProtoSCTP:
		m.words(t.Sport, t.Dport)
		m.bytes(8)
	case t.Proto == echo.Protocol(v4):
		m.icmp(t, v4)
		return
	}
	m.bytes(m.size())
}

func (m *maker) tcp(t model.Tuple) {
	flags := pick[uint8](m, packet.SYN, packet.SYN, packet.SYN, packet.SYN|packet.ACK, packet.ACK, packet.ACK, packet.ACK|packet.PSH,
		packet.FIN|packet.ACK, packet.RST, packet.RST|packet.ACK, 0, uint8(m.Uint32()))
	seq, number := m.Uint32(), m.Uint32()
	if r := m.s.Rows[t]; r != nil && m.chance(70) {
		number = r.Seq + pick[uint32](m, 0, 1, 1, 1, 65536, 65537, 1<<24, 1<<24+1, ^uint32(0), 1<<31)
	}
	options := 0
	if m.chance(25) {
		options = 4 * m.IntN(11)
	}
	m.words(t.Sport, t.Dport, uint16(seq>>16), uint16(seq), uint16(number>>16), uint16(number),
		uint16(5+options/4)<<12|uint16(flags), uint16(m.Uint32()), 0, 0)
	m.bytes(options)
}

// finish writes lengths and checksums, most of them right.
func (m *maker) finish(t model.Tuple, v4 bool, l4 int) {
	ip := m.frame[packet.EthLen:]
	if v4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[10:], packet.Checksum(ip[:l4-packet.EthLen], 0))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}
	segment := m.frame[l4:]
	if t.Proto == packet.ProtoSCTP && len(segment) >= 12 && m.chance(90) {
		clear(segment[8:12])
		if m.chance(90) { // else it is the device's to fill in
			binary.LittleEndian.PutUint32(segment[8:], crc32.Checksum(segment, castagnoli))
		}
	}
	at, sum := 0, uint32(t.Proto)+uint32(len(segment))
	switch {
	case t.Proto == packet.ProtoTCP:
		at = 16
	case t.Proto == packet.ProtoUDP && !m.chance(15):
		at = 6
	case t.Proto == echo.Protocol(v4):
		at = 2
	}
	if at == 0 || len(segment) < at+2 || m.chance(5) {
		return
	}
	addrs := ip[8:40]
	if v4 {
		addrs = ip[12:20]
	}
	if t.Proto == packet.ProtoICMP {
		addrs, sum = nil, 0
	}
	check := packet.Checksum(segment, uint32(^packet.Checksum(addrs, sum)))
	if t.Proto == packet.ProtoUDP && check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(segment[at:], check)
}
