// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// Protocol numbers that the tests use.
const (
	ProtoHopOpts  = 0
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoGRE      = 47
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoDstOpts  = 60
	ProtoSCTP     = 132
)

// TCP flags.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10
)

// Transport is a transport header.
type Transport interface {
	// Protocol is its number, which ICMP has one of for each family.
	Protocol(ipv4 bool) uint8
	// Ports are what the datapath files the packet under.
	Ports() (src, dst uint16)
	WithPorts(src, dst uint16) Transport
	// marshal returns header and payload, and where the checksum goes, or -1.
	marshal(ipv4 bool, payload []byte) (segment []byte, checksumAt int)
	// seal is the checksum as it is sent.
	seal(sum uint16) uint16
}

// TCP is a TCP header; Options are a multiple of 4 bytes.
type TCP struct {
	Src, Dst uint16
	Seq, Ack uint32
	Flags    uint8
	Options  []byte
}

func (TCP) Protocol(bool) uint8       { return ProtoTCP }
func (t TCP) Ports() (uint16, uint16) { return t.Src, t.Dst }
func (TCP) seal(sum uint16) uint16    { return sum }
func (t TCP) WithPorts(s, d uint16) Transport {
	t.Src, t.Dst = s, d
	return t
}

func (t TCP) marshal(_ bool, payload []byte) ([]byte, int) {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, t.Src)
	binary.BigEndian.PutUint16(b[2:], t.Dst)
	binary.BigEndian.PutUint32(b[4:], t.Seq)
	binary.BigEndian.PutUint32(b[8:], t.Ack)
	b[12], b[13] = byte(5+len(t.Options)/4)<<4, t.Flags
	binary.BigEndian.PutUint16(b[14:], 0xfaf0)
	return append(append(b, t.Options...), payload...), 16
}

// UDP is a UDP header.
type UDP struct {
	Src, Dst   uint16
	NoChecksum bool // sent as 0: not computed
}

func (UDP) Protocol(bool) uint8       { return ProtoUDP }
func (u UDP) Ports() (uint16, uint16) { return u.Src, u.Dst }
func (u UDP) WithPorts(s, d uint16) Transport {
	u.Src, u.Dst = s, d
	return u
}

// seal sends a sum of 0 as its other spelling, since 0 says that there is none.
func (u UDP) seal(sum uint16) uint16 {
	if u.NoChecksum {
		return 0
	}
	if sum == 0 {
		return 0xffff
	}
	return sum
}

func (u UDP) marshal(_ bool, payload []byte) ([]byte, int) {
	b := make([]byte, 8)
	binary.BigEndian.PutUint16(b, u.Src)
	binary.BigEndian.PutUint16(b[2:], u.Dst)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return append(b, payload...), 6
}

// SCTP is an SCTP header. Its CRC covers the ports, but no address.
type SCTP struct {
	Src, Dst   uint16
	NoChecksum bool // sent as 0: left to the device
}

func (SCTP) Protocol(bool) uint8       { return ProtoSCTP }
func (s SCTP) Ports() (uint16, uint16) { return s.Src, s.Dst }
func (SCTP) seal(sum uint16) uint16    { return sum }
func (s SCTP) WithPorts(src, dst uint16) Transport {
	s.Src, s.Dst = src, dst
	return s
}

func (s SCTP) marshal(_ bool, payload []byte) ([]byte, int) {
	b := binary.BigEndian.AppendUint16(nil, s.Src)
	b = binary.BigEndian.AppendUint16(b, s.Dst)
	b = append(append(b, 1, 2, 3, 4, 0, 0, 0, 0), payload...)
	if !s.NoChecksum {
		binary.LittleEndian.PutUint32(b[8:], crc32c(b))
	}
	return b, -1
}

// Echo is an ICMP echo request or reply. Its identifier stands for the asking side's
// port: the source of a request, the destination of a reply.
type Echo struct {
	ID, Seq uint16
	Reply   bool
}

func (Echo) Protocol(ipv4 bool) uint8 {
	if ipv4 {
		return ProtoICMP
	}
	return ProtoICMPv6
}

func (e Echo) Ports() (uint16, uint16) {
	if e.Reply {
		return 0, e.ID
	}
	return e.ID, 0
}

func (e Echo) WithPorts(s, d uint16) Transport {
	e.ID = s | d
	return e
}
func (Echo) seal(sum uint16) uint16 { return sum }

func (e Echo) marshal(ipv4 bool, payload []byte) ([]byte, int) {
	kinds := map[bool]map[bool]byte{true: {false: 8, true: 0}, false: {false: 128, true: 129}}
	b := []byte{kinds[ipv4][e.Reply], 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, e.ID)
	b = binary.BigEndian.AppendUint16(b, e.Seq)
	return append(b, payload...), 2
}

// ICMP is any other ICMP message: the 4 bytes after the checksum are part of the payload.
type ICMP struct{ Type, Code uint8 }

func (ICMP) Protocol(ipv4 bool) uint8             { return Echo{}.Protocol(ipv4) }
func (ICMP) Ports() (uint16, uint16)              { return 0, 0 }
func (i ICMP) WithPorts(uint16, uint16) Transport { return i }
func (ICMP) seal(sum uint16) uint16               { return sum }

func (i ICMP) marshal(_ bool, payload []byte) ([]byte, int) {
	return append([]byte{i.Type, i.Code, 0, 0}, payload...), 2
}

// Raw is a protocol without ports or checksum that we know of: all is payload.
type Raw uint8

func (r Raw) Protocol(bool) uint8                        { return uint8(r) }
func (Raw) Ports() (uint16, uint16)                      { return 0, 0 }
func (r Raw) WithPorts(uint16, uint16) Transport         { return r }
func (Raw) seal(sum uint16) uint16                       { return sum }
func (Raw) marshal(_ bool, payload []byte) ([]byte, int) { return append([]byte{}, payload...), -1 }
