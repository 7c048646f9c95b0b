// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const (
	fromPodHook       = bpf.DatapathHookHOOK_FROM_POD
	fromUplinkHook    = bpf.DatapathHookHOOK_FROM_UPLINK
	dropFragmentOrder = bpf.DatapathDropReasonDROP_FRAGMENT_ORDER
	dropSource        = bpf.DatapathDropReasonDROP_SOURCE
	dropLoopback      = bpf.DatapathDropReasonDROP_LOOPBACK
)

// S1: a pod's packets have a pod's own address.
func TestPrivilegedSourceOwn(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, o := range openers {
			p := between(f.a, f.client, o.Transport)
			out := n.fromPod(n.a, p)
			n.passed(out, p)
			n.tables(out, nil, nil)
		}
		n.notDropped()
	})
}

// S1: any other address, whoever has it, does not get out, wherever it goes.
func TestPrivilegedSourceForged(t *testing.T) {
	for name, src := range map[string]func(family) netip.Addr{
		"other pod's": func(f family) netip.Addr { return f.b },
		"node's":      func(f family) netip.Addr { return f.node },
		"outside's":   func(f family) netip.Addr { return f.client2 },
		"gateway's":   func(f family) netip.Addr { return f.linkEnd },
		"unspecified": func(f family) netip.Addr {
			return map[bool]netip.Addr{true: netip.IPv4Unspecified(), false: netip.IPv6Unspecified()}[f.node.Is4()]
		},
		"multicast": func(f family) netip.Addr {
			return map[bool]netip.Addr{true: ip("224.0.0.1"), false: ip("ff02::1")}[f.node.Is4()]
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, o := range openers {
					for _, dst := range []netip.Addr{f.b, f.client, f.node} {
						n.clear()
						n.hostport(anyAddr, 80, packet.ProtoTCP, 8080)
						out := n.fromPod(n.a, between(src(f), dst, o.Transport))
						n.dropped(out, n.a.Index, fromPodHook, dropSource)
						n.tables(out, nil, nil)
					}
				}
			})
		})
	}
}

// S1: an IPv6 packet to a mapped address is IPv6 all the same.
func TestPrivilegedSourceForgedToMapped(t *testing.T) {
	n := newNode(t)
	mapped := netip.AddrFrom16(v4.client.As16())
	for _, src := range []netip.Addr{v6.b, v6.client2, netip.AddrFrom16(v4.a.As16()), netip.AddrFrom16(v4.b.As16())} {
		n.clear()
		n.dropped(n.fromPod(n.a, between(src, mapped, udp)), n.a.Index, fromPodHook, dropSource)
	}
}

// S1: a priority tag (VLAN 0), or one on top of another, is nothing to the stack: it
// takes them off and goes on. So they excuse nothing.
func TestPrivilegedSourceForgedTagged(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		once := between(f.b, f.client, udp).Link(n.a.MAC, n.a.Peer).Frame()
		twice := slices.Insert(slices.Clone(once), 12, 0x81, 0, 0, 0)
		for _, frame := range [][]byte{once, twice} {
			n.clear()
			out := n.Run(n, packet.In{Program: "from_pod", Device: n.a.Index, Frame: frame, Tagged: true})
			n.verdict(out, packet.Shot)
			for key, c := range n.Object.Drops(n) {
				if key.Reason != dropSource || c.Packets != 1 {
					n.Errorf("counters: %+v: %+v", key, c)
				}
			}
		}
	})
}

// A container's interfaces may send each other's addresses; only that container's.
func TestPrivilegedSourceOtherInterface(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		other := n.b.row
		other.Netns = n.a.row.Netns
		n.putPod(f.b, other)
		p := between(f.b, f.client, udp)
		n.passed(n.fromPod(n.a, p), p)
		n.notDropped()
		// The device's own row says where it is; without one it is nowhere.
		if err := n.maps.Ifaces.Delete(bpf.DatapathIfaceKey{Ifindex: uint32(n.a.Index)}); err != nil {
			n.Fatal(err)
		}
		n.dropped(n.fromPod(n.a, p), n.a.Index, fromPodHook, dropSource)
	})
}

// S2: loopback addresses neither leave a pod nor come in from the wire.
func TestPrivilegedLoopback(t *testing.T) {
	loopback := map[bool][]netip.Addr{true: {ip("127.0.0.1"), ip("127.9.9.9")}, false: {ip("::1")}}
	eachFamily(t, func(n *node, f family) {
		for _, lo := range loopback[f.node.Is4()] {
			for _, o := range openers {
				for _, p := range []packet.Packet{between(f.a, lo, o.Transport), between(lo, f.a, o.Transport),
					between(lo, f.client, o.Transport), between(lo, lo, o.Transport)} {
					n.clear()
					n.hostport(anyAddr, 80, packet.ProtoTCP, 8080)
					n.dropped(n.fromPod(n.a, p), n.a.Index, fromPodHook, dropLoopback)
					n.clear()
					n.dropped(n.fromUplink(p), n.uplink.Index, fromUplinkHook, dropLoopback)
				}
			}
		}
	})
}

// Neighbour discovery and MLD pass from the unspecified and from link-local addresses.
func TestPrivilegedLinkTalk(t *testing.T) {
	n := newNode(t)
	routerAlert := []packet.Extension{{Protocol: packet.ProtoHopOpts, Data: []byte{5, 2, 0, 0, 1, 0}}}
	for icmpType, passes := range map[uint8]bool{
		133: true, 135: true, 136: true, // solicitations and neighbour advertisement
		130: true, 131: true, 132: true, 143: true, // MLD
		134: false, 137: false, // router advertisement and redirect
		1: false, 2: false, 3: false, 4: false, // errors
		128: false, 129: false, // echo
	} {
		for _, src := range []string{"::", "fe80::1234", "febf::1"} {
			for _, exts := range [][]packet.Extension{nil, routerAlert} {
				n.clear()
				about := append(make([]byte, 4), ip("fe80::1234").AsSlice()...)
				p := between(ip(src), ip("ff02::1"), packet.ICMP{Type: icmpType}).With(about).Lives(255)
				p.Extensions = exts
				out := n.fromPod(n.a, p)
				if passes {
					n.passed(out, p)
					n.notDropped()
				} else {
					n.dropped(out, n.a.Index, fromPodHook, dropSource)
				}
			}
		}
		for _, src := range []netip.Addr{v6.b, ip("fec0::1"), ip("ff02::2")} {
			n.clear()
			p := between(src, ip("ff02::1"), packet.ICMP{Type: icmpType}).With(make([]byte, 20))
			n.dropped(n.fromPod(n.a, p), n.a.Index, fromPodHook, dropSource)
		}
	}
	for _, o := range openers {
		n.clear()
		n.dropped(n.fromPod(n.a, between(ip("fe80::1234"), v6.b, o.Transport)), n.a.Index, fromPodHook, dropSource)
	}
}

// A counter row adds up.
func TestPrivilegedCounter(t *testing.T) {
	n := newNode(t)
	p := between(v4.b, v4.client, udp)
	size := uint64(len(p.Frame()))
	for range 3 {
		n.verdict(n.fromPod(n.a, p), packet.Shot)
	}
	got := bpf.DatapathCounter{}
	for key, c := range n.Object.Drops(n) {
		if key != (bpf.DatapathCounterKey{Ifindex: uint32(n.a.Index), Hook: fromPodHook, Reason: dropSource}) {
			t.Errorf("row of %+v", key)
		}
		got = c
	}
	if want := (bpf.DatapathCounter{Packets: 3, Bytes: 3 * size}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
