// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// randomAddr is a unicast address of the family, and no loopback.
func randomAddr(r *rand.Rand, f family) netip.Addr {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], r.Uint64())
	binary.NativeEndian.PutUint64(b[8:], r.Uint64())
	if f.node.Is4() {
		return netip.AddrFrom4([4]byte{byte(1 + r.IntN(100)), b[1], b[2], b[3]})
	}
	b[0] = 0x20
	return netip.AddrFrom16(b)
}

// natTransports are all that has a checksum to keep right, and what has none.
var natTransports = []opener{
	{"TCP", ack, 0}, {"UDP", udp, 0}, {"UDP without checksum", packet.UDP{NoChecksum: true}, 0},
	{"echo", echo, 0}, {"SCTP", packet.SCTP{}, 0}, {"SCTP left to the device", packet.SCTP{NoChecksum: true}, 0}, {"GRE", packet.Raw(packet.ProtoGRE), 0},
}

// randomFlow is a flow that changes everything that can be changed.
func (n *node) randomFlow(r *rand.Rand, f family, o opener) flow {
	n.Helper()
	port := func() uint16 { return uint16(1 + r.IntN(65535)) }
	fl := flow{in: between(randomAddr(r, f), randomAddr(r, f), o.Transport), to: genA, action: toPod, reply: toWire}
	switch o.Transport.(type) {
	case packet.Echo:
		fl.in = fl.in.From(fl.in.Src, port())
		fl.out = fl.in.From(randomAddr(r, f), port())
		fl.out.Dst = randomAddr(r, f)
	case packet.Raw: // has no ports
		fl.in = fl.in.From(fl.in.Src, port()).To(fl.in.Dst, port())
		fl.out = fl.in
		fl.out.Src, fl.out.Dst = randomAddr(r, f), randomAddr(r, f)
	default:
		fl.in = fl.in.From(fl.in.Src, port()).To(fl.in.Dst, port())
		fl.out = fl.in.From(randomAddr(r, f), port()).To(randomAddr(r, f), port())
	}
	payload := make([]byte, r.IntN(100))
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	fl.in, fl.out = fl.in.With(payload), fl.out.With(payload)
	n.putPod(fl.out.Dst, n.a.row)
	return fl
}

// Whatever is rewritten, every byte is as if the packet had been made so.
func TestPrivilegedNat(t *testing.T) {
	for _, o := range natTransports {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				r := rand.New(rand.NewPCG(1, 2))
				for i := range fewer(200) {
					n.clear()
					fl := n.randomFlow(r, f, o)
					n.put(n.maps.Flows, fl, 0)
					if i%2 == 1 {
						fl.in.Options, fl.in.Extensions = []byte{1, 1, 1, 1}, []packet.Extension{{Protocol: packet.ProtoHopOpts, Data: packet.PadN}}
						fl.out.Options, fl.out.Extensions = fl.in.Options, fl.in.Extensions
					}
					out := n.fromUplink(fl.in)
					n.delivered(out, n.a, fl.out.Hop())
					if n.Failed() {
						n.Fatalf("%s -> %s", name(fl.in.Tuple()), name(fl.out.Tuple()))
					}
				}
				n.notDropped()
			})
		})
	}
}

// A device that summed up the packet (CHECKSUM_COMPLETE) has to be kept right too, else
// the receiver complains of the hardware and sums up all by itself.
func TestPrivilegedNatChecksumComplete(t *testing.T) {
	for _, o := range natTransports {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				r := rand.New(rand.NewPCG(3, 4))
				for range fewer(50) {
					n.clear()
					fl := n.randomFlow(r, f, o)
					untranslated := fl
					untranslated.in = untranslated.out
					for _, fl := range []flow{untranslated, fl} {
						n.forget()
						n.put(n.maps.Flows, fl, 0)
						in := packet.In{Program: "from_uplink", Device: n.uplink.Index, Flags: packet.VerifyChecksumComplete,
							Frame: fl.in.Link(n.uplink.MAC, n.uplink.Peer).Frame()}
						out, err := n.TryRun(n, in)
						if errors.Is(err, unix.EINVAL) {
							n.Skip("this kernel cannot feign CHECKSUM_COMPLETE")
						}
						if err != nil {
							n.Fatalf("%s -> %s: skb->csum: %v", name(fl.in.Tuple()), name(fl.out.Tuple()), err)
						}
						n.delivered(out, n.a, fl.out.Hop())
					}
				}
			})
		})
	}
}

// A UDP sum that comes out as 0 is sent as 0xffff: 0 says that there is none.
func TestPrivilegedNatUDPSumOfZero(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		n.put(n.maps.Flows, fl, 0)
		for word := range 65536 {
			payload := binary.BigEndian.AppendUint16(nil, uint16(word))
			want := fl.out.With(payload).Hop().Link(n.a.Peer, n.a.MAC).Frame()
			at := len(want) - 4
			if want[at] != 0xff || want[at+1] != 0xff {
				continue
			}
			n.delivered(n.fromUplink(fl.in.With(payload)), n.a, fl.out.With(payload).Hop())
			return
		}
		n.Fatal("no payload gives a sum of 0")
	})
}

// A wrong checksum is not repaired: the receiver is to find out.
func TestPrivilegedNatKeepsErrors(t *testing.T) {
	for _, o := range openers[:4] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				r := rand.New(rand.NewPCG(5, 6))
				fl := n.randomFlow(r, f, o)
				payload := []byte("damaged on the way")
				fl.in, fl.out = fl.in.With(payload), fl.out.With(payload)
				n.put(n.maps.Flows, fl, 0)
				frame := fl.in.Link(n.uplink.MAC, n.uplink.Peer).Frame()
				want := fl.out.Hop().Link(n.a.Peer, n.a.MAC).Frame()
				frame[len(frame)-3] ^= 0x10
				want[len(want)-3] ^= 0x10
				out := n.run("from_uplink", n.uplink, frame)
				n.verdict(out, packet.Redirect)
				n.same(out.Frame, want)
			})
		})
	}
}

// The stack's own flows are translated without a hop.
func TestPrivilegedNatToStack(t *testing.T) {
	for _, o := range natTransports[:2] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				r := rand.New(rand.NewPCG(7, 8))
				fl := n.randomFlow(r, f, o)
				fl.action = bpf.DatapathFlowActionFLOW_TO_STACK
				n.put(n.maps.Flows, fl, 0)
				for _, ttl := range []uint8{1, 64} {
					out := n.fromUplink(fl.in.Lives(ttl))
					n.verdict(out, packet.Unspec)
					n.same(out.Frame[packet.EthLen:], fl.out.Lives(ttl).Frame()[packet.EthLen:])
				}
			})
		})
	}
}
