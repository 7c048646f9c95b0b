// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

func allOverV4(int, int) linkage { return overV4 }

// byIPv4OrIPv6 makes a mesh of two nodes over each family.
func byIPv4OrIPv6(t *testing.T, f func(t *testing.T, m *mesh), expected ...string) {
	for name, how := range map[string]linkage{"OverIPv4": overV4, "OverIPv6": overV6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newMesh(t, 2, func(int, int) linkage { return how }, expected...))
		})
	}
}

// Pods whose MTU is the wire's and not the tunnel's are told of the tunnel's, by the node, about
// what they sent; then TCP and UDP pass, both ways.
func TestPrivilegedTunnelMTU(t *testing.T) {
	t.Parallel()
	byIPv4OrIPv6(t, func(t *testing.T, m *mesh) {
		for _, n := range m.Nodes {
			unlimit(t, n.NS)
		}
		for _, v := range families {
			for name, port := range map[string]uint16{"Pod": 80, "HostPort": 8080} {
				t.Run(fmt.Sprintf("%s/%d", name, v), func(t *testing.T) {
					a, _ := serve(t, m.Nodes[0], netns.PodSpec{Name: "a"}) // pods of their own: what they learn they keep
					b, _ := serve(t, m.Nodes[1], netns.PodSpec{Name: "b", Ports: netns.Both(8080, 80)})
					defer b.Del(t)
					defer a.Del(t)
					to := b.Addr(v)
					if port != 80 {
						to = tunnelAddr(m.Nodes[1], v)
					}
					big := call("udp", to, port)
					big.Size = 1450
					if o, err := a.Try(big, 0); err != nil || o.MTU != tunnelMTU { // it may not be fragmented
						t.Errorf("%d bytes: want to be told MTU %d, got %s with %d (%v)", big.Size, tunnelMTU, o, o.MTU, err)
					}
					w := want{server: "b", remote: only(a.Addr(v))}
					passes(t, a.NS, big, w)
					tcp := call("tcp", to, port)
					tcp.Size = 20000
					passes(t, a.NS, tcp, w)
				})
			}
		}
	})
}

// What one end leaves to be cut, or summed, by a device on the way arrives as it was sent: the
// tunnel takes large packets whole.
func TestPrivilegedTunnelOffload(t *testing.T) {
	t.Parallel()
	byIPv4OrIPv6(t, func(t *testing.T, m *mesh) {
		conf := map[string]any{"mtu": tunnelMTU}
		a, _ := serve(t, m.Nodes[0], netns.PodSpec{Name: "a", Conf: conf})
		b, _ := serve(t, m.Nodes[1], netns.PodSpec{Name: "b", Conf: conf})
		for _, v := range families {
			on := map[*netns.Pod]*netns.Link{a: a.Link(t, a.IfName), b: b.Link(t, b.IfName)}
			c := call("tcp", b.Addr(v), 80)
			c.Size, c.Timeout = 1<<19, netns.Patience
			ask(t, a.NS, c, want{server: "b", remote: only(a.Addr(v))})
			for p, link := range on {
				_, err := link.Next(func(f []byte) bool { return len(f) > 2*tunnelMTU && read(f).dst == p.Addr(v) })
				if err != nil {
					t.Errorf("IPv%d: no packet of several segments came to %s: %v", v, p.ID, err)
				}
			}
		}
	})
}

// vxlan is what a node would send for a packet, as far as the UDP socket does not do it.
func vxlan(id uint32, frame []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, id<<8)
	return append(b, frame...)
}

// What comes to the tunnel's port is let in only from the node that has the source: neither from
// outside, nor from another node, nor with a source that is this node's, nor in another network,
// nor if it is no IP packet, or one with a VLAN tag.
func TestPrivilegedTunnelForged(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, allOverV4, "tunnel_source", "no_remote")
	node, outside := m.Nodes[0], m.Outside()
	victim, _ := serve(t, node, netns.PodSpec{Name: "victim"})
	mate, _ := serve(t, node, netns.PodSpec{Name: "mate"})
	friend, _ := serve(t, m.Nodes[1], netns.PodSpec{Name: "friend"})
	m.Nodes[2].Add(t, netns.PodSpec{Name: "other"})
	device := mac(t, devices(t, node.NS)[tunnelDev].MAC)
	far := device
	far[5] ^= 1
	send := func(from *netns.NS, payload []byte) {
		t.Helper()
		err := from.Do(func() error {
			c, err := net.Dial("udp4", netip.AddrPortFrom(node.Uplinks[0].V4, 4789).String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(payload)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range families {
		f, err := friend.Open(netns.Call{Proto: "udp", From: netip.AddrPortFrom(friend.Addr(v), 40000), To: netip.AddrPortFrom(victim.Addr(v), 80)})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		inner := packet.Packet{DstMAC: device, SrcMAC: far, Src: friend.Addr(v), Dst: victim.Addr(v), Transport: packet.UDP{Src: 40000, Dst: 80}}.With([]byte("n0;"))
		frame := inner.Frame()
		tagged := append(append(append([]byte{}, frame[:12]...), 0x81, 0, 0, 0), frame[12:]...)
		arp := append(append(append([]byte{}, frame[:12]...), 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1), make([]byte, 20)...)
		for name, tc := range map[string]struct {
			from  *netns.NS
			bytes []byte
			drops uint64
		}{
			"Right":        {m.Nodes[1].NS, vxlan(vni, frame), 0},
			"Outside":      {outside.NS, vxlan(vni, frame), 1},
			"OutsideAsIs":  {outside.NS, vxlan(vni, inner.From(outside.Addr(v), 40000).Frame()), 1},
			"AnotherNode":  {m.Nodes[2].NS, vxlan(vni, frame), 1},
			"NodeItself":   {m.Nodes[1].NS, vxlan(vni, inner.From(m.Nodes[1].Uplinks[0].Addr(v), 40000).Frame()), 1},
			"LocalPod":     {m.Nodes[1].NS, vxlan(vni, inner.From(mate.Addr(v), 40000).Frame()), 1},
			"OtherNetwork": {m.Nodes[1].NS, vxlan(vni+1, frame), 1},
			"Tagged":       {m.Nodes[1].NS, vxlan(vni, tagged), 1},
			"ARP":          {m.Nodes[1].NS, vxlan(vni, arp), 1},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, v), func(t *testing.T) {
				before := drops(t, node, "tunnel_source")
				send(tc.from, tc.bytes)
				if tc.drops == 0 {
					if _, err := f.Await([]byte("n0;")); err != nil {
						t.Errorf("not let in: %v", err)
					}
				}
				err := netns.Poll(func() error {
					if now := drops(t, node, "tunnel_source"); now != before+tc.drops {
						return fmt.Errorf("dropped %d, want %d", now-before, tc.drops)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Where no row says which node has a destination that is routed into the tunnel, it is counted;
// and once there is one, it is used.
func TestPrivilegedTunnelNoRemote(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, allOverV4, "no_remote")
	a := m.Nodes[0].Add(t, netns.PodSpec{Name: "a"})
	b, _ := serve(t, m.Nodes[1], netns.PodSpec{Name: "b"})
	plan := m.plan(t, m.Nodes[0])
	for _, v := range families {
		without := plan
		without.Remotes = nil
		for _, r := range plan.Remotes {
			if r.Prefix.Addr().Is4() != (v == 4) {
				without.Remotes = append(without.Remotes, r)
			}
		}
		without.apply(t, m.Nodes[0])
		refuse(t, a.NS, call("udp", b.Addr(v), 80))
		if got := drops(t, m.Nodes[0], "no_remote"); got == 0 {
			t.Errorf("IPv%d: not counted", v)
		}
		plan.apply(t, m.Nodes[0])
		ask(t, a.NS, call("udp", b.Addr(v), 80), want{server: "b", remote: only(a.Addr(v))})
		c, err := maps.Collect(tables(t, m.Nodes[0]).Counters.All())
		if err != nil || len(c) == 0 || c[0].Hook.String() != "to_tunnel" {
			t.Errorf("counters: %v, %v", c, err)
		}
	}
}
