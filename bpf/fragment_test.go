// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const fragmentID = 0x2a2a

var datagram = bytes.Repeat([]byte("0123456789"), 300)

// arrive runs a datagram's fragments on the uplink or from pod A.
func (n *node) arrive(prog string, frames [][]byte) (outs []packet.Out) {
	n.Helper()
	dev := n.uplink
	if prog == "from_pod" {
		dev = n.a.Device
	}
	for _, frame := range frames {
		copy(frame, dev.MAC[:])
		copy(frame[6:], dev.Peer[:])
		outs = append(outs, n.run(prog, dev, frame))
	}
	return outs
}

// I2: the fragments of a translated datagram follow the first one, there and back.
func TestPrivilegedFragments(t *testing.T) {
	for name, tr := range map[string]packet.Transport{"UDP": udp, "TCP": syn} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				fl := n.hostportFlow(f, tr)
				fl.in, fl.out = fl.in.With(datagram), fl.out.With(datagram)
				outs := n.arrive("from_uplink", fl.in.Fragments(fragmentID, 1000))
				want := fl.out.Hop().Link(n.a.Peer, n.a.MAC).Fragments(fragmentID, 1000)
				for i, out := range outs {
					n.redirected(out)
					n.same(out.Frame, want[i])
				}
				n.tables(outs[0], fl.rows(), nil)
				n.fragmentRow(outs[0], fl.in)

				back := answer(fl.out)
				outs = n.arrive("from_pod", back.Fragments(fragmentID, 1000))
				want = answer(fl.in).Hop().Fragments(fragmentID, 1000)
				for i, out := range outs {
					n.redirected(out)
					n.same(out.Frame[packet.EthLen:], want[i][packet.EthLen:])
				}
				n.fragmentRow(outs[0], back)
				n.notDropped()
			})
		})
	}
}

// fragmentRow checks the row that the first fragment of p left.
func (n *node) fragmentRow(out packet.Out, p packet.Packet) {
	n.Helper()
	t, found := p.Tuple(), 0
	for key, row := range packet.Rows[bpf.DatapathFragmentKey, bpf.DatapathFragment](n, n.maps.Fragments) {
		if key.Src != t.Src || key.Dst != t.Dst {
			continue
		}
		found++
		if row.Tuple != t || row.SeenNs < out.Began || row.SeenNs > out.Ended {
			n.Errorf("fragments: %+v: got %s seen at %d, want %s", key, name(row.Tuple), row.SeenNs, name(t))
		}
	}
	if found != 1 {
		n.Errorf("fragments: %d rows for %s", found, name(t))
	}
}

// What does not follow: another datagram, one whose first fragment is late or long ago.
func TestPrivilegedFragmentsStray(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		fl.in = fl.in.With(datagram)
		frames := fl.in.Fragments(fragmentID, 1000)
		stray := func(frame []byte) {
			n.Helper()
			out := n.arrive("from_uplink", [][]byte{frame})[0]
			n.verdict(out, packet.Unspec)
			n.same(out.Frame, frame)
		}
		stray(frames[1])
		n.tables(packet.Out{}, nil, nil)
		// Then the first one has nothing to lead to; the count is of datagrams.
		n.dropped(n.arrive("from_uplink", frames[:1])[0], n.uplink.Index, fromUplinkHook, dropFragmentOrder)
		stray(frames[2])
		// The network does not keep fragments that long: this is another datagram.
		n.ageFragments(time.Second)
		n.Object.ClearDrops(n)
		n.verdict(n.arrive("from_uplink", frames[:1])[0], packet.Redirect)
		stray(fl.in.Fragments(fragmentID+1, 1000)[1])
		stray(fl.in.From(f.client2, 40000).Fragments(fragmentID, 1000)[1])
		if f.node.Is4() { // RFC 8200 knows a datagram by addresses and number alone
			stray(fl.in.As(packet.TCP{}).Fragments(fragmentID, 1000)[1])
		}
		n.verdict(n.arrive("from_uplink", frames[1:2])[0], packet.Redirect)

		n.ageFragments(31 * time.Second)
		stray(frames[2])
		n.notDropped()
	})
}

func (n *node) ageFragments(by time.Duration) {
	n.Helper()
	for key, row := range packet.Rows[bpf.DatapathFragmentKey, bpf.DatapathFragment](n, n.maps.Fragments) {
		row.SeenNs -= uint64(by)
		packet.Put(n, n.maps.Fragments, key, row)
	}
}

// The fragments of an untranslated flow all go to the stack, the first too, also where a
// row carries its whole packets.
func TestPrivilegedFragmentsUntranslated(t *testing.T) {
	for _, o := range openers[2:4] {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, live := range []bool{false, true} {
					n.forget()
					fl := directA(f, o)
					var want rows
					if live {
						n.put(n.maps.Flows, fl, 0)
						want = n.flowRows(n.maps.Flows)
					}
					fl.in = fl.in.With(datagram)
					for prog, p := range map[string]packet.Packet{"from_uplink": fl.in, "from_pod": fl.in.Reverse()} {
						frames := p.Fragments(fragmentID, 1000)
						for i, out := range n.arrive(prog, frames) {
							n.verdict(out, packet.Unspec)
							n.same(out.Frame, frames[i])
							n.tables(out, nil, want)
						}
					}
					for key, row := range packet.Rows[bpf.DatapathFragmentKey, bpf.DatapathFragment](n, n.maps.Fragments) {
						if row.Tuple != (bpf.DatapathTuple{}) {
							n.Errorf("fragments: %+v leads to %s", key, name(row.Tuple))
						}
					}
				}
				n.notDropped()
			})
		})
	}
}

// A forged source is one in a later fragment too.
func TestPrivilegedFragmentsForged(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		frames := between(f.b, f.client, udp).With(datagram).Fragments(fragmentID, 1000)
		n.dropped(n.arrive("from_pod", frames[1:2])[0], n.a.Index, fromPodHook, dropSource)
	})
}

// IPv6 extension headers may stand on either side of the fragment header.
func TestPrivilegedFragmentsExtensions(t *testing.T) {
	options := packet.Extension{Protocol: packet.ProtoDstOpts, Data: packet.PadN}
	for name, place := range map[string]func(*packet.Packet){
		"before": func(p *packet.Packet) { p.Extensions = []packet.Extension{options} },
		"after":  func(p *packet.Packet) { p.Inner = []packet.Extension{options} },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			fl := n.hostportFlow(v6, udp)
			fl.in, fl.out = fl.in.With(datagram), fl.out.With(datagram)
			place(&fl.in)
			place(&fl.out)
			want := fl.out.Hop().Link(n.a.Peer, n.a.MAC).Fragments(fragmentID, 1000)
			for i, out := range n.arrive("from_uplink", fl.in.Fragments(fragmentID, 1000)) {
				n.redirected(out)
				n.same(out.Frame, want[i])
			}
			n.notDropped()
		})
	}
}
