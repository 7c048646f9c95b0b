// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
)

var (
	pairs = [][2]netip.Addr{
		{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.7")},
		{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:f::7")},
	}
	transports = []Transport{TCP{Src: 1, Dst: 2, Flags: SYN, Options: []byte{2, 4, 5, 0xb4}}, UDP{Src: 1, Dst: 2},
		Echo{ID: 1, Seq: 2}, Echo{ID: 1, Reply: true}, ICMP{Type: 3}, SCTP{Src: 1, Dst: 2}, Raw(ProtoGRE)}
)

// A checksum that this package did not compute: the often quoted IPv4 header whose
// Checksum is b861.
func TestChecksumOfKnownHeader(t *testing.T) {
	header, err := hex.DecodeString("450000730000400040110000c0a80001c0a800c7")
	if err != nil {
		t.Fatal(err)
	}
	if got := Checksum(header, 0); got != 0xb861 {
		t.Errorf("got %#x, want 0xb861", got)
	}
}

// What Frame makes Verify takes, and each damaged byte that a checksum covers it finds.
func TestVerify(t *testing.T) {
	for _, pair := range pairs {
		for _, tr := range transports {
			p := Packet{Src: pair[0], Dst: pair[1], Transport: tr, Payload: []byte("odd")}
			frame := p.Frame()
			if err := Verify(frame); err != nil {
				t.Errorf("%T %s: %v", tr, pair[0], err)
			}
			if _, none := tr.(Raw); none {
				continue
			}
			for i := len(p.With(nil).As(Raw(0)).Frame()); i < len(frame); i++ {
				damaged := bytes.Clone(frame)
				damaged[i] ^= 4
				if Verify(damaged) == nil {
					t.Errorf("%T %s: byte %d damaged, not found", tr, pair[0], i)
				}
			}
		}
	}
}

// Options, extension headers and fragments lead Verify to the right place.
func TestVerifyHeaders(t *testing.T) {
	for _, pair := range pairs {
		p := Packet{Src: pair[0], Dst: pair[1], Transport: UDP{Src: 1, Dst: 2}, Payload: bytes.Repeat([]byte("x"), 100),
			Options:    []byte{1, 1, 1, 1},
			Extensions: []Extension{{ProtoHopOpts, PadN}, {ProtoAH, make([]byte, 22)}},
			Inner:      []Extension{{ProtoDstOpts, PadN}}}
		frame := p.Frame()
		if err := Verify(frame); err != nil {
			t.Error(err)
		}
		frame[len(frame)-1]++
		if Verify(frame) == nil {
			t.Error("a damaged last byte was not found")
		}
		for _, f := range p.Fragments(7, 48) {
			if err := Verify(f); err != nil {
				t.Error(err)
			}
		}
	}
}

// The fragments hold the segment, all of it and once.
func TestFragments(t *testing.T) {
	for _, pair := range pairs {
		p := Packet{Src: pair[0], Dst: pair[1], Transport: UDP{Src: 1, Dst: 2}, Payload: bytes.Repeat([]byte("x"), 100)}
		header := 20
		if !p.IPv4() {
			header = 48
		}
		var got []byte
		for _, f := range p.Fragments(7, 48) {
			got = append(got, f[EthLen+header:]...)
		}
		if want := p.segment(); !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", pair[0], got, want)
		}
	}
}
