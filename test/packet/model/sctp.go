// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (v *view) movesSCTP(r *Row) bool {
	return v.Proto == sctp && v.base == 0 && (r.Sport != v.Sport || r.Dport != v.Dport)
}

// stuck: the ports of a fragment cannot change, since the sum covers what is not there.
func (v *view) stuck(r *Row) bool { return v.movesSCTP(r) && v.kind != whole }

// crc is SCTP's checksum of the packet (RFC 9260), by the length that its network header
// says.
func (v *view) crc(b []byte) (sum uint32, ok bool) {
	end := ethernet + int(binary.BigEndian.Uint16(b[ethernet+2:]))
	if v.v6 {
		end = ethernet + 40 + int(binary.BigEndian.Uint16(b[ethernet+4:]))
	}
	if end < v.l4+12 || end > len(b) {
		return 0, false
	}
	sum = crc32.Update(0, castagnoli, b[v.l4:v.l4+8])
	sum = crc32.Update(sum, castagnoli, []byte{0, 0, 0, 0})
	return crc32.Update(sum, castagnoli, b[v.l4+12:end]), true
}

// wrongCRC is by how much the sum is wrong, if it has to change: one of 0 is the device's
// to fill in.
func (v *view) wrongCRC(b []byte, r *Row) (wrong uint32, changes bool) {
	if !v.movesSCTP(r) {
		return 0, false
	}
	field := binary.LittleEndian.Uint32(b[v.l4+8:])
	if field == 0 {
		return 0, false
	}
	sum, ok := v.crc(b)
	if !ok {
		v.anyCRC = v.l4 + 8
	}
	return field ^ sum, ok
}

func (v *view) sealCRC(b []byte, wrong uint32) {
	sum, _ := v.crc(b)
	binary.LittleEndian.PutUint32(b[v.l4+8:], sum^wrong)
}
