// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// Extension is an IPv6 extension header. Data is what follows its next-header and
// length bytes; it is padded to the header's unit.
type Extension struct {
	Protocol uint8
	Data     []byte
}

// PadN is the Data of a hop-by-hop or destination options header of 8 bytes that asks
// for nothing.
var PadN = []byte{1, 4, 0, 0, 0, 0}

func (e Extension) marshal(next uint8) []byte {
	b := append([]byte{next, 0}, e.Data...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	switch e.Protocol {
	case ProtoFragment: // has no length
	case ProtoAH:
		b[1] = byte(len(b)/4 - 2)
	default:
		b[1] = byte(len(b)/8 - 1)
	}
	return b
}

// link6 links the headers and returns them with the number of the first one.
func link6(exts []Extension, last uint8) ([]byte, uint8) {
	var b []byte
	for i := len(exts) - 1; i >= 0; i-- {
		b = append(exts[i].marshal(last), b...)
		last = exts[i].Protocol
	}
	return b, last
}

type fragmentHeader struct {
	present bool
	id      uint32
	offset  int // bytes
	more    bool
}

func (f fragmentHeader) moreBit(bit uint16) uint16 {
	if f.more {
		return bit
	}
	return 0
}

func (f fragmentHeader) extension() Extension {
	data := binary.BigEndian.AppendUint16(nil, uint16(f.offset)|f.moreBit(1))
	return Extension{ProtoFragment, binary.BigEndian.AppendUint32(data, f.id)}
}

// Fragments returns the packet cut into pieces of size bytes of segment each (a
// multiple of 8). A size that holds all of it gives the one atomic fragment of RFC 6946.
func (p Packet) Fragments(id uint32, size int) [][]byte {
	var frames [][]byte
	seg := p.segment()
	for off := 0; off < len(seg); off += size {
		end := min(off+size, len(seg))
		frames = append(frames, p.frame(seg[off:end], fragmentHeader{true, id, off, end < len(seg)}))
	}
	return frames
}
