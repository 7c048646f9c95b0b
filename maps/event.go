// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/culvert-cni/culvert/bpf"
)

// Verdict is enum verdict: what a hook made of a packet. Piece says which one of a
// datagram's the packet is; the zero value is a whole one.
type (
	Verdict uint8
	Piece   uint8
)

const (
	VerdictPass       = Verdict(bpf.DatapathVerdictVERDICT_PASS)
	VerdictRedirect   = Verdict(bpf.DatapathVerdictVERDICT_REDIRECT)
	VerdictDrop       = Verdict(bpf.DatapathVerdictVERDICT_DROP)
	VerdictRedirected = Verdict(bpf.DatapathVerdictVERDICT_REDIRECTED)

	FirstFragment = Piece(1)
	LaterFragment = Piece(2)
)

// Event is one packet at one hook.
type Event struct {
	Time       time.Duration // CLOCK_MONOTONIC
	Tuple      Tuple         // as it came; addresses are invalid where the packet shows none
	To         Tuple         // as it leaves
	Ifindex    int           // the device of the hook
	OutIfindex int           // of a redirect, else 0
	Length     int           // bytes of the frame; of a GSO packet, all of it
	Ethertype  uint16
	Hook       Hook
	Verdict    Verdict
	Reason     DropReason // of a drop, else 0
	TCPFlags   uint8
	ICMPType   uint8
	Piece      Piece
}

// decodeEvent reads what the ring buffer has, in the kernel's byte order.
func decodeEvent(sample []byte) (Event, error) {
	var raw bpf.DatapathEvent
	if len(sample) != int(unsafe.Sizeof(raw)) {
		return Event{}, fmt.Errorf("read events: one of %d bytes, want %d", len(sample), unsafe.Sizeof(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&raw)), unsafe.Sizeof(raw)), sample)
	return Event{
		Time:       time.Duration(raw.TimeNs),
		Tuple:      decodeTuple(&raw.Tuple),
		To:         decodeTuple(&raw.To),
		Ifindex:    int(raw.Ifindex),
		OutIfindex: int(raw.OutIfindex),
		Length:     int(raw.Length),
		Ethertype:  raw.Ethertype,
		Hook:       Hook(raw.Hook),
		Verdict:    Verdict(raw.Verdict),
		Reason:     DropReason(raw.Reason),
		TCPFlags:   raw.TcpFlags,
		ICMPType:   raw.IcmpType,
		Piece:      Piece(raw.Fragment),
	}, nil
}

func (v Verdict) String() string {
	return name(v, map[Verdict]string{
		VerdictPass: "pass", VerdictRedirect: "redirect", VerdictDrop: "drop", VerdictRedirected: "redirected",
	})
}

// String is empty for a packet that is whole.
func (p Piece) String() string {
	return name(p, map[Piece]string{0: "", FirstFragment: "first", LaterFragment: "later"})
}
