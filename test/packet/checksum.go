// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// crc32c is SCTP's checksum of a packet whose own is 0 (RFC 9260, appendix A).
func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// add sums b as 16-bit words (RFC 1071), without folding.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

// Checksum is the Internet checksum of b, on top of sum.
func Checksum(b []byte, sum uint32) uint16 {
	sum = add(sum, b)
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Verify checks every checksum of a frame as a receiver would: by the bytes that are
// there and nothing that this package knows of how they were made. Fragments, whose
// checksum covers what is not there, are checked in their network header only.
func Verify(frame []byte) error {
	if len(frame) < EthLen+20 {
		return fmt.Errorf("verify frame: %d bytes are no IP packet", len(frame))
	}
	ip := frame[EthLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case EthIPv4:
		return verify4(ip)
	case EthIPv6:
		return verify6(ip)
	}
	return fmt.Errorf("verify frame: ethertype %#x is not IP", frame[12:14])
}

func verify4(ip []byte) error {
	ihl, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ihl < 20 || total < ihl || total > len(ip) {
		return fmt.Errorf("verify IPv4 header: header %d, total %d, there are %d", ihl, total, len(ip))
	}
	if Checksum(ip[:ihl], 0) != 0 {
		return fmt.Errorf("verify IPv4 header: checksum is off by %#x", Checksum(ip[:ihl], 0))
	}
	if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || ip[9] == ProtoICMPv6 { // which IPv4 knows nothing of
		return nil
	}
	return verifySegment(ip[9], ip[ihl:total], ip[12:20])
}

func verify6(ip []byte) error {
	end := 40 + int(binary.BigEndian.Uint16(ip[4:]))
	next, at := ip[6], 40
	if end > len(ip) {
		return fmt.Errorf("verify IPv6 header: length %d, there are %d", end, len(ip))
	}
	for at+2 <= end {
		length := 8
		switch next {
		case ProtoHopOpts, ProtoRouting, ProtoDstOpts:
			length += int(ip[at+1]) * 8
		case ProtoAH:
			length += int(ip[at+1]) * 4
		case ProtoFragment:
		default:
			return verifySegment(next, ip[at:end], ip[8:40])
		}
		if at+length > end {
			return fmt.Errorf("verify IPv6 extension header %d: %d bytes, there are %d", next, length, end-at)
		}
		if next == ProtoFragment && binary.BigEndian.Uint16(ip[at+2:])&0xfff9 != 0 {
			return nil
		}
		next, at = ip[at], at+length
	}
	return nil
}

func verifySegment(proto uint8, seg, addrs []byte) error {
	sum := add(uint32(proto)+uint32(len(seg)), addrs)
	switch proto {
	case ProtoICMP:
		sum = 0
	case ProtoUDP:
		if len(seg) >= 8 && seg[6] == 0 && seg[7] == 0 {
			return nil
		}
	case ProtoSCTP:
		return verifySCTP(seg)
	case ProtoTCP, ProtoICMPv6:
	default:
		return nil
	}
	if got := Checksum(seg, sum); got != 0 {
		return fmt.Errorf("verify checksum of protocol %d: off by %#x", proto, got)
	}
	return nil
}

func verifySCTP(seg []byte) error {
	if len(seg) < 12 {
		return fmt.Errorf("verify SCTP header: %d bytes", len(seg))
	}
	got := binary.LittleEndian.Uint32(seg[8:])
	if got == 0 {
		return nil // left to the device
	}
	zeroed := append(append(append([]byte{}, seg[:8]...), 0, 0, 0, 0), seg[12:]...)
	if want := crc32c(zeroed); got != want {
		return fmt.Errorf("verify SCTP checksum: %#x, want %#x", got, want)
	}
	return nil
}
