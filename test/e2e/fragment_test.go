// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// I2: datagrams of 4 to 60 kB go through a hostPort and back, by masquerade and back,
// and directly; in the order that they were cut in, nothing is lost.
func TestPrivilegedI2InOrder(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2, Uplinks: 2})
	node, outside, far := c.Nodes[0], c.Outside(), c.Peers[1]
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	masq, _ := serve(t, node, netns.PodSpec{Name: "masq", Conf: masquerading("10.244.0.0/16", "fd00:244::/32")})
	remote, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "remote"})
	outside.Serve(t, 80)
	far.Serve(t, 80)
	for _, tc := range []struct {
		name string
		from *netns.NS
		to   func(int) netip.Addr
		port uint16
		w    string
		seen func(int) netip.Addr
	}{
		{"HostPort", outside.NS, node.Uplinks[0].Addr, 8080, "a", outside.Addr},
		{"HostPortOfUplink1", far.NS, node.Uplinks[1].Addr, 8080, "a", far.Addr},
		{"HostPortFromPod", masq.NS, node.Uplinks[0].Addr, 8080, "a", masq.Addr},
		{"HostPortFromItself", a.NS, node.Uplinks[0].Addr, 8080, "a", nil},
		{"HostPortFromRemotePod", remote.NS, node.Uplinks[0].Addr, 8080, "a", remote.Addr},
		{"Masquerade", masq.NS, outside.Addr, 80, outside.Name, node.Uplinks[0].Addr},
		{"MasqueradeByUplink1", masq.NS, far.Addr, 80, far.Name, node.Uplinks[1].Addr},
		{"Pod", outside.NS, a.Addr, 80, "a", outside.Addr},
		{"PodFromPod", masq.NS, a.Addr, 80, "a", masq.Addr},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, v := range families {
				f, err := tc.from.Open(call("udp", tc.to(v), tc.port))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				for _, size := range []int{1, 4000, 20000, 60000, 4000, 1} { // by one socket
					w := want{server: tc.w}
					if tc.seen != nil {
						w.remote = only(tc.seen(v))
					}
					r, err := f.Sized(size).Ask()
					if err == nil {
						err = w.check(r)
					}
					if err != nil {
						t.Errorf("IPv%d, %d bytes: want %s, got %v", v, size, w, err)
					}
				}
			}
		})
	}
}

// I2: fragments of a translated datagram that come before their first one are lost, and
// counted by name; the next datagram in order passes. Into a hostPort, out of it, and
// out by masquerade.
func TestPrivilegedI2OutOfOrder(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "fragment_order")
	node, outside := c.Nodes[0], c.Outside()
	a, onPod := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	masq := node.Add(t, netns.PodSpec{Name: "masq", Conf: masquerading()})
	onOutside := outside.Serve(t, 80)
	for _, tc := range []struct {
		name     string
		link     *netns.Link
		dst      packet.MAC
		from, to func(int) netip.Addr
		port     uint16
		srv      *netns.Server
	}{
		{"HostPort", outside.Link(t, "port0"), mac(t, devices(t, node.NS)["up0"].MAC), outside.Addr, node.Uplinks[0].Addr, 8080, onPod},
		{"HostPortFromPod", masq.Link(t, masq.IfName), mac(t, masq.Host.MAC), masq.Addr, node.Uplinks[0].Addr, 8080, onPod},
		{"Masquerade", masq.Link(t, masq.IfName), mac(t, masq.Host.MAC), masq.Addr, outside.Addr, 80, onOutside},
	} {
		for _, v := range families {
			t.Run(fmt.Sprintf("%s/%d", tc.name, v), func(t *testing.T) {
				base := packet.Packet{DstMAC: tc.dst, SrcMAC: packet.MAC(tc.link.MAC), Src: tc.from(v), Dst: tc.to(v)}.
					As(packet.UDP{Src: 40000 + uint16(v), Dst: tc.port})
				if tc.name == "HostPort" {
					base.SrcMAC = mac(t, devices(t, outside.NS)["br0"].MAC)
				}
				key := func(order string) string { return t.Name() + order }
				send := func(order string) {
					pieces := base.With(fmt.Appendf(nil, "hold:%s;%04000d", key(order), 0)).Fragments(rand.Uint32(), 1400)
					if order == "last first" {
						slices.Reverse(pieces)
					}
					for _, f := range pieces {
						if err := tc.link.Send(f); err != nil {
							t.Fatal(err)
						}
					}
				}
				before := drops(t, node, "fragment_order")
				send("last first")
				send("in order")
				if err := onceHeld(tc.srv, key("in order")); err != nil {
					t.Error(err)
				}
				if tc.srv.Has(key("last first")) {
					t.Error("out of order: want it lost, it arrived")
				}
				if after := drops(t, node, "fragment_order"); after == before {
					t.Error("out of order: want fragment_order counted")
				}
			})
		}
	}
	t.Run("HostPortsAnswer", func(t *testing.T) { answersOutOfOrder(t, c, a) })
}

func onceHeld(s *netns.Server, key string) error {
	if err := s.Held(key); err != nil {
		return fmt.Errorf("in order: %w", err)
	}
	return nil
}

// answersOutOfOrder has the pod itself answer in pieces, the last one first.
func answersOutOfOrder(t *testing.T, c *cluster, a *netns.Pod) {
	node, outside := c.Nodes[0], c.Outside()
	link, wire := a.Link(t, a.IfName), outside.Link(t, "port0")
	for _, v := range families {
		f, err := outside.Open(call("udp", node.Uplinks[0].Addr(v), 8080))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Ask(); err != nil {
			t.Fatal(err)
		}
		answer := packet.Packet{DstMAC: mac(t, a.Host.MAC), SrcMAC: packet.MAC(link.MAC), Src: a.Addr(v), Dst: outside.Addr(v)}.
			As(packet.UDP{Src: 80, Dst: f.LocalPort()}).With(make([]byte, 4000)).Fragments(rand.Uint32(), 1400)
		before := drops(t, node, "fragment_order")
		for i := range answer {
			if err := link.Send(answer[len(answer)-1-i]); err != nil {
				t.Fatal(err)
			}
		}
		if after := drops(t, node, "fragment_order"); after == before {
			t.Errorf("IPv%d: out of order answer: want fragment_order counted", v)
		}
		first := func(f []byte) bool { s := read(f); return s.offset == 0 && s.more && s.dst == outside.Addr(v) }
		if got, err := wire.TryNext(first); got != nil || err != nil {
			t.Errorf("IPv%d: want no first fragment outside, got %x (%v)", v, got, err)
		}
		if _, err := f.Sized(4000).Ask(); err != nil {
			t.Errorf("IPv%d: in order: %v", v, err)
		}
	}
}

// I2: lo has room for datagrams that the pod's interface has not. The host is answered,
// or what it sent is counted; what fits and what TCP cuts itself passes.
func TestPrivilegedI2FromHost(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "too_big")
	node := c.Nodes[0]
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	for _, v := range families {
		for _, to := range []netip.Addr{node.Uplinks[0].Addr(v), loopback[v]} {
			t.Run(fmt.Sprint(to), func(t *testing.T) {
				big := call("tcp", to, 8080)
				big.Size = 300000
				ask(t, node.NS, big, want{server: "a"})
				for _, size := range []int{1400, 1500, 4000, 60000} {
					c := call("udp", to, 8080)
					c.Size, c.Timeout = size, soon
					before := drops(t, node, "too_big")
					_, err := node.Ask(c)
					switch after := drops(t, node, "too_big"); {
					case err != nil && size <= 1400:
						t.Errorf("%d bytes: %v", size, err)
					case err != nil && after == before:
						t.Errorf("%d bytes: want an answer or too_big counted, got %v", size, err)
					}
				}
			})
		}
	}
}
