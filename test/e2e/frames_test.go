// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/packet"
)

// seen is what a test wants to know of a packet on a wire.
type seen struct {
	src, dst     netip.Addr
	proto        uint8
	sport, dport uint16 // ICMP echo: the identifier in both
	flags        uint8  // TCP
	kind, code   uint8  // ICMP
	info         uint32 // ICMP: what follows the checksum, the MTU among others
	offset       int    // of a fragment, in bytes
	more         bool
	body         []byte // from the transport header on
}

// read parses a frame; proto 255 is one that is not IP.
func read(f []byte) seen {
	none := seen{proto: 255}
	if len(f) < packet.EthLen {
		return none
	}
	switch binary.BigEndian.Uint16(f[12:]) {
	case packet.EthIPv4, packet.EthIPv6:
		return readIP(f[packet.EthLen:])
	}
	return none
}

// readIP parses a packet, which may be cut off, as those inside ICMP errors are.
func readIP(p []byte) seen {
	s := seen{proto: 255}
	switch {
	case len(p) >= 20 && p[0]>>4 == 4 && len(p) >= int(p[0]&15)*4:
		word := binary.BigEndian.Uint16(p[6:])
		s.proto, s.offset, s.more = p[9], int(word&0x1fff)*8, word&0x2000 != 0
		s.src, s.dst = netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
		s.body = p[int(p[0]&15)*4 : max(int(p[0]&15)*4, min(len(p), int(binary.BigEndian.Uint16(p[2:]))))]
	case len(p) >= 40 && p[0]>>4 == 6:
		s.proto, s.body = p[6], p[40:min(len(p), 40+int(binary.BigEndian.Uint16(p[4:])))]
		s.src, s.dst = netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
		if s.proto == packet.ProtoFragment && len(s.body) >= 8 {
			word := binary.BigEndian.Uint16(s.body[2:])
			s.proto, s.offset, s.more, s.body = s.body[0], int(word&^7), word&1 != 0, s.body[8:]
		}
	}
	if s.offset == 0 && len(s.body) >= 8 {
		s.transport()
	}
	return s
}

func (s *seen) transport() {
	switch s.proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		s.sport, s.dport = binary.BigEndian.Uint16(s.body), binary.BigEndian.Uint16(s.body[2:])
		if s.proto == packet.ProtoTCP && len(s.body) >= 20 {
			s.flags = s.body[13]
		}
	case packet.ProtoICMP, packet.ProtoICMPv6:
		s.kind, s.code, s.info = s.body[0], s.body[1], binary.BigEndian.Uint32(s.body[4:])
		s.sport, s.dport = uint16(s.info>>16), uint16(s.info>>16)
	}
}

// inner is the packet that an ICMP error is about.
func (s seen) inner() seen {
	if len(s.body) < 8 {
		return seen{proto: 255}
	}
	return readIP(s.body[8:])
}

// mac reads a MAC address as `ip link` prints it.
func mac(t testing.TB, text string) packet.MAC {
	t.Helper()
	m, err := net.ParseMAC(text)
	if err != nil || len(m) != 6 {
		t.Fatalf("MAC %q: %v", text, err)
	}
	return packet.MAC(m)
}
