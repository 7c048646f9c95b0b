// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// H1: from outside to any local address of the node, of every uplink, those
// added after ADD too; the pod sees the client's address.
func TestPrivilegedH1FromOutside(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node, far := c.Nodes[0], c.Peers[1]
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	node.IP(t, "addr add 10.10.0.99/24 dev up0", "addr add fd00:10::99/64 dev up0 nodad",
		"addr add 192.0.2.1/32 dev lo", "addr add 2001:db8::1/128 dev lo nodad")
	node.Settle(t, "up0", netip.MustParseAddr("fd00:10::99"))
	for _, p := range c.Peers {
		p.IP(t, "route add 192.0.2.1 via "+node.Uplinks[p.V4.AsSlice()[1]-10].V4.String(),
			"route add 2001:db8::1 via "+node.Uplinks[p.V4.AsSlice()[1]-10].V6.String())
	}
	later := netns.Uplink{V4: netip.MustParseAddr("10.10.0.99"), V6: netip.MustParseAddr("fd00:10::99")}
	loopback := netns.Uplink{V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8::1")}
	for _, tc := range []struct {
		name string
		from *netns.Peer
		to   netns.Uplink
	}{
		{"Uplink0", c.Outside(), node.Uplinks[0]},
		{"Uplink0AddressAddedLater", c.Outside(), later},
		{"AddressOnLo", c.Outside(), loopback},
		{"Uplink1ThroughUplink0", c.Outside(), node.Uplinks[1]},
		{"Uplink1", far, node.Uplinks[1]},
		{"Uplink0ThroughUplink1", far, node.Uplinks[0]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, protos, func(t *testing.T, proto string, v int) {
				ask(t, tc.from.NS, call(proto, tc.to.Addr(v), 8080), want{server: "a", remote: only(tc.from.Addr(v))})
			})
		})
	}
	t.Run("DeviceAddedLater", func(t *testing.T) {
		third := netns.NewPeer(t, 2)
		up := node.AddUplink(t, third, 2, 1500)
		third.IP(t, "route add default via "+up.V4.String(), "route add default via "+up.V6.String())
		c.Outside().IP(t, "route add 10.12.0.0/24 via "+node.Uplinks[0].V4.String(), "route add fd00:12::/64 via "+node.Uplinks[0].V6.String())
		// The next ADD sees the device.
		serve(t, node, netns.PodSpec{Name: "b", Ports: netns.Both(8081, 80)})
		each(t, protos, func(t *testing.T, proto string, v int) {
			ask(t, third.NS, call(proto, up.Addr(v), 8080), want{server: "a", remote: only(third.Addr(v))})
			ask(t, third.NS, call(proto, node.Uplinks[0].Addr(v), 8081), want{server: "b", remote: only(third.Addr(v))})
			ask(t, c.Outside().NS, call(proto, up.Addr(v), 8080), want{server: "a", remote: only(c.Outside().Addr(v))})
		})
	})
}

// H2, as far as the node's own addresses go: the host reaches a hostPort by each
// of them, also from another one of them.
func TestPrivilegedH2FromHost(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node := c.Nodes[0]
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	for i, up := range node.Uplinks {
		t.Run(up.Dev, func(t *testing.T) {
			each(t, []string{"tcp", "udp"}, func(t *testing.T, proto string, v int) {
				other := node.Uplinks[1-i].Addr(v)
				ask(t, node.NS, call(proto, up.Addr(v), 8080), want{server: "a"})
				bound := call(proto, up.Addr(v), 8080)
				bound.From = netip.AddrPortFrom(other, 0)
				ask(t, node.NS, bound, want{server: "a", remote: only(other)})
			})
		})
	}
}

// H3: from another pod on the node, on the same subnet or not, by every address of the
// node, from another node's pod, and from the pod itself, which sees its gateway call.
func TestPrivilegedH3FromPods(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2, Uplinks: 2})
	node := c.Nodes[0]
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	other := node.Add(t, netns.PodSpec{Name: "other", Conf: map[string]any{"ipam": map[string]any{
		"type": "static", "addresses": []any{map[string]any{"address": "10.77.0.2/24"}, map[string]any{"address": "fd00:77::2/64"}},
	}}})
	remote, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "remote"})
	for _, from := range []*netns.Pod{a, b, other, remote} {
		t.Run(from.Name, func(t *testing.T) {
			each(t, protos, func(t *testing.T, proto string, v int) {
				seen := from.Addr(v)
				if from == a {
					seen = map[int]netip.Addr{4: netip.MustParseAddr("169.254.1.1"), 6: gateway}[v]
				}
				for _, up := range node.Uplinks {
					ask(t, from.NS, call(proto, up.Addr(v), 8080), want{server: "a", remote: only(seen)})
				}
			})
		})
	}
}

// H4: a hostIP is answered there alone; one that the node lacks maps nothing and
// takes nothing from its true holder.
func TestPrivilegedH4HostIP(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node, outside, far := c.Nodes[0], c.Outside(), c.Peers[1]
	at := node.Uplinks[1]
	serve(t, node, netns.PodSpec{Name: "a", Ports: append(netns.Both(8080, 80, at.V4.String()), netns.Both(8080, 80, at.V6.String())...)})
	serve(t, node, netns.PodSpec{Name: "absent", Ports: append(netns.Both(8081, 80, "10.10.0.77"), netns.Both(8081, 80, "fd00:10::77")...)})
	serve(t, node, netns.PodSpec{Name: "foreign", Ports: append(netns.Both(8082, 80, outside.V4.String()), netns.Both(8082, 80, outside.V6.String())...)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	outside.Serve(t, 8082)
	each(t, []string{"tcp", "udp"}, func(t *testing.T, proto string, v int) {
		ask(t, outside.NS, call(proto, at.Addr(v), 8080), want{server: "a"})
		ask(t, far.NS, call(proto, at.Addr(v), 8080), want{server: "a"})
		ask(t, b.NS, call(proto, at.Addr(v), 8080), want{server: "a"})
		refuse(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 8080))
		refuse(t, b.NS, call(proto, node.Uplinks[0].Addr(v), 8080))
		refuse(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 8081))
		for _, from := range []*netns.NS{b.NS, far.NS, node.NS} {
			ask(t, from, call(proto, outside.Addr(v), 8082), want{server: outside.Name})
		}
	})
}

// H5: one port number with another protocol or hostIP coexists; a specific
// address beats the wildcard, whichever came first.
func TestPrivilegedH5Coexist(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node, outside := c.Nodes[0], c.Outside()
	up0, up1 := node.Uplinks[0], node.Uplinks[1]
	here := func(port int, u netns.Uplink) []netns.PortMapping {
		return append(netns.Both(port, 80, u.V4.String()), netns.Both(port, 80, u.V6.String())...)
	}
	serve(t, node, netns.PodSpec{Name: "tcp", Ports: netns.Both(8080, 80)[:1]})
	serve(t, node, netns.PodSpec{Name: "udp", Ports: netns.Both(8080, 80)[1:]})
	serve(t, node, netns.PodSpec{Name: "up0", Ports: here(8081, up0)})
	serve(t, node, netns.PodSpec{Name: "up1", Ports: here(8081, up1)})
	serve(t, node, netns.PodSpec{Name: "wild-first", Ports: netns.Both(8082, 80)})
	serve(t, node, netns.PodSpec{Name: "specific-second", Ports: here(8082, up1)})
	serve(t, node, netns.PodSpec{Name: "specific-first", Ports: here(8083, up1)})
	serve(t, node, netns.PodSpec{Name: "wild-second", Ports: netns.Both(8083, 80)})
	each(t, []string{"tcp", "udp"}, func(t *testing.T, proto string, v int) {
		for _, tc := range []struct {
			at     netns.Uplink
			port   uint16
			server string
		}{
			{up0, 8080, proto}, {up1, 8080, proto},
			{up0, 8081, "up0"}, {up1, 8081, "up1"},
			{up0, 8082, "wild-first"}, {up1, 8082, "specific-second"},
			{up0, 8083, "wild-second"}, {up1, 8083, "specific-first"},
		} {
			ask(t, outside.NS, call(proto, tc.at.Addr(v), tc.port), want{server: tc.server})
		}
	})
}

// H6: a port that a live pod holds is refused and the holder named; a dead
// holder is replaced, and its late DEL takes nothing from the successor (L4).
func TestPrivilegedH6Held(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	ports := netns.Both(8080, 80)
	a, server := serve(t, node, netns.PodSpec{Name: "holder", Ports: ports})
	_, err := node.TryAdd(netns.PodSpec{Name: "second", NS: netns.New(t, "second"), Ports: ports})
	if netns.Code(err) != 100 || !strings.Contains(err.Error(), "holder") || !strings.Contains(err.Error(), "8080") {
		t.Errorf("ADD of a held port: want error 100 naming the holder and 8080, got %v", err)
	}
	ask(t, outside.NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "holder"})
	server.Close() // its sockets would keep the namespace
	a.Vanish()
	b, _ := serve(t, node, netns.PodSpec{Name: "successor", Ports: ports})
	late := map[string]string{"CNI_NETNS": ""}
	if err := a.TryDel(late); err != nil {
		t.Errorf("late DEL of the dead holder: %v", err)
	}
	each(t, []string{"tcp", "udp"}, func(t *testing.T, proto string, v int) {
		ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "successor"})
		ask(t, outside.NS, call(proto, b.Addr(v), 80), want{server: "successor"})
	})
}

// H8, GHSA-jv3w-x3r3-g6rm: traffic through the node to somebody else's port is untouched,
// from pods and from outside, though a pod has that number as a hostPort.
func TestPrivilegedH8SomebodyElses(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2, Uplinks: 2})
	node, outside, far := c.Nodes[0], c.Outside(), c.Peers[1]
	dns := node.Add(t, netns.PodSpec{Name: "dns", Ports: netns.Both(53, 53)})
	for _, ns := range []*netns.NS{dns.NS, outside.NS, far.NS, c.Nodes[1].NS} {
		ns.Serve(t, 53)
	}
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	other, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "other"})
	other.Serve(t, 53)
	each(t, protos, func(t *testing.T, proto string, v int) {
		ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 53), want{server: "dns"})
		for _, from := range []*netns.Pod{b, dns} {
			ask(t, from.NS, call(proto, outside.Addr(v), 53), want{server: outside.Name, remote: only(from.Addr(v))})
			ask(t, from.NS, call(proto, far.Addr(v), 53), want{server: far.Name})
			ask(t, from.NS, call(proto, other.Addr(v), 53), want{server: "other"})
			ask(t, from.NS, call(proto, c.Nodes[1].Uplinks[0].Addr(v), 53), want{server: c.Nodes[1].Name})
		}
		ask(t, outside.NS, call(proto, far.Addr(v), 53), want{server: far.Name, remote: only(outside.Addr(v))})
		ask(t, far.NS, call(proto, outside.Addr(v), 53), want{server: outside.Name, remote: only(far.Addr(v))})
		ask(t, node.NS, call(proto, outside.Addr(v), 53), want{server: outside.Name})
		// The other pod's own neighbours on that port are pods, not the node.
		ask(t, outside.NS, call(proto, other.Addr(v), 53), want{server: "other"})
	})
}

// H8: "no route" looks like a local address to the FIB. A node without default
// routes captures nobody's port all the same.
func TestPrivilegedH8NoDefaultRoute(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	node.IP(t, "route del default", "route del default via fd00:10::1")
	node.Sysctl(t, "net/ipv6/conf/up0/accept_ra", "0")
	dns := node.Add(t, netns.PodSpec{Name: "dns", Ports: netns.Both(53, 53)})
	dns.Serve(t, 53)
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	for _, v := range families {
		to := map[int]netip.Addr{4: netip.MustParseAddr("198.51.100.53"), 6: netip.MustParseAddr("2001:db8::53")}[v]
		for _, proto := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprintf("%s/%d", proto, v), func(t *testing.T) {
				refuse(t, b.NS, call(proto, to, 53))
				refuse(t, dns.NS, call(proto, to, 53))
				ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 53), want{server: "dns"})
				ask(t, b.NS, call(proto, node.Uplinks[0].Addr(v), 53), want{server: "dns"})
			})
		}
	}
}

// H9: a pod's own loopback is its own.
func TestPrivilegedH9OwnLoopback(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	b.Serve(t, 8080)
	for _, to := range []string{"127.0.0.1", "::1"} {
		for _, proto := range []string{"tcp", "udp"} {
			ask(t, b.NS, call(proto, netip.MustParseAddr(to), 8080), want{server: "b"})
		}
	}
	ask(t, b.NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "a"})
}
