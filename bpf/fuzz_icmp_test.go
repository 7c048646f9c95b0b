// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

// icmp writes an echo, or any other message; errors hold a packet of a flow.
func (m *maker) icmp(t model.Tuple, v4 bool) {
	kinds := map[bool][2]uint8{true: {8, 0}, false: {128, 129}}[v4]
	kind, id := kinds[0], t.Sport
	if t.Dport != 0 && t.Sport == 0 || m.chance(10) {
		kind, id = kinds[1], t.Dport
	}
	if !m.chance(15) {
		m.words(uint16(kind)<<8, 0, id)
		if m.chance(5) { // a sum of nothing
			m.words(0)
			return
		}
		m.bytes(2 + m.size())
		return
	}
	if len(m.s.Opened) > 0 && m.chance(70) {
		m.icmpError(v4)
		return
	}
	kind = pick[uint8](m, 3, 4, 5, 9, 11, 12, 13, 1, 2, 128, 130, 132, 133, 134, 135, 136, 137, 143)
	m.words(uint16(kind)<<8|uint16(m.IntN(16)), 0)
	m.bytes(4 + m.size())
}

// icmpError quotes a packet that goes the other way than some flow's row does.
func (m *maker) icmpError(v4 bool) {
	t := pick(m, m.s.Opened...)
	either := !v4 && m.chance(3) // mapped addresses, which are nobody's on the wire
	for !either && netip.AddrFrom16(t.Src).Is4In6() != v4 {
		t = pick(m, m.s.Opened...)
	}
	row := m.s.Rows[t]
	t = t.Reverse()
	m.words(uint16(pick[uint8](m, 3, 4, 11, 12, 1, 2, 3))<<8|uint16(m.IntN(16)), 0, uint16(m.IntN(2)), uint16(m.IntN(1500)))
	at := len(m.frame)
	if v4 {
		m.ipv4(place{Tuple: t}, piece{more: m.chance(5)})
	} else {
		m.ipv6(place{Tuple: t}, piece{})
	}
	m.frame = append(m.frame[:at], m.frame[at+2:]...) // a quotation has no Ethernet type
	if quoted := m.frame[at:]; v4 && m.chance(90) {
		binary.BigEndian.PutUint16(quoted[10:], packet.Checksum(quoted, 0))
	}
	l4 := len(m.frame)
	m.transport(t, v4)
	if row != nil && t.Proto == packet.ProtoUDP && m.chance(10) {
		m.sumOfZero(t, row, m.frame[l4:])
	}
	if m.chance(40) {
		m.frame = m.frame[:min(len(m.frame), l4+8)]
	}
	if m.chance(5) {
		m.frame = m.frame[:at+m.IntN(len(m.frame)-at+1)]
	}
}

// sumOfZero writes the UDP checksum that comes out as 0 when the quotation is translated.
func (m *maker) sumOfZero(t model.Tuple, row *model.Row, header []byte) {
	sum := func(src, dst model.Addr, sport, dport uint16) uint16 {
		b := binary.BigEndian.AppendUint16(append(append([]byte{}, src[:]...), dst[:]...), sport)
		return ^packet.Checksum(binary.BigEndian.AppendUint16(b, dport), 0)
	}
	is, becomes := sum(t.Src, t.Dst, t.Sport, t.Dport), sum(row.Dst, row.Src, row.Dport, row.Sport)
	binary.BigEndian.PutUint16(header[6:], ^packet.Checksum(nil, uint32(becomes)+uint32(^is)))
}

// solicit makes a neighbour solicitation, or an advertisement, that the pod's own kernel
// could have sent, more or less.
func (m *maker) solicit(at place) {
	src := pick(m, at.Src, at.Src, model.AddrOf(ip("fe80::5")), model.Addr{})
	if m.chance(10) {
		m.frame[11] ^= 1 // another MAC address
	}
	m.words(packet.EthIPv6, 0x6000, 0, 32)
	m.frame = append(m.frame, packet.ProtoICMPv6, 255)
	m.frame = append(append(m.frame, src[:]...), 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1)
	m.words(pick[uint16](m, 135, 135, 136)<<8, 0, uint16(m.IntN(2)), 0)
	target := model.AddrOf(pick(m, append(m.addrs(v6), ip("fe80::1"), ip("fe80::5"))...))
	m.frame = append(m.frame, target[:]...)
	m.words(pick[uint16](m, 0x0101, 0x0101, 0x0101, 0x0201, 0x0102, 0x0001))
	m.frame = append(m.frame, at.device.Peer[:]...)
	m.finish(model.Tuple{Proto: packet.ProtoICMPv6}, false, packet.EthLen+40)
	m.damage(packet.EthLen + 40)
}
