// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// N1: each way between pods, their host and the outside, by every protocol.
func TestPrivilegedN1Paths(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a"})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	r, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "r"})
	for _, ns := range []*netns.NS{node.NS, c.Nodes[1].NS, outside.NS} {
		ns.Serve(t, 80)
	}
	up, up1 := node.Uplinks[0], c.Nodes[1].Uplinks[0]
	for _, path := range []struct {
		name     string
		from, to *netns.NS
		at       func(int) netip.Addr
		seen     func(int) netip.Addr // nil: any
	}{
		{"PodToPod", a.NS, b.NS, b.Addr, a.Addr},
		{"PodToHost", a.NS, node.NS, up.Addr, a.Addr},
		{"HostToPod", node.NS, a.NS, a.Addr, nil},
		{"PodToOutside", a.NS, outside.NS, outside.Addr, a.Addr},
		{"OutsideToPod", outside.NS, a.NS, a.Addr, outside.Addr},
		{"PodToRemotePod", a.NS, r.NS, r.Addr, a.Addr},
		{"RemotePodToPod", r.NS, a.NS, a.Addr, r.Addr},
		{"PodToRemoteHost", a.NS, c.Nodes[1].NS, up1.Addr, a.Addr},
		{"RemoteHostToPod", c.Nodes[1].NS, a.NS, a.Addr, nil},
		{"PodToItself", a.NS, a.NS, a.Addr, a.Addr},
	} {
		t.Run(path.name, func(t *testing.T) {
			each(t, protos, func(t *testing.T, proto string, family int) {
				w := want{server: path.to.Name}
				if path.seen != nil {
					w.remote = only(path.seen(family))
				}
				ask(t, path.from, call(proto, path.at(family), 80), w)
			})
			pings(t, path.from, path.at)
		})
	}
}

// pings sends one small and one that takes fragments.
func pings(t *testing.T, from *netns.NS, at func(int) netip.Addr) {
	t.Helper()
	for _, size := range []int{56, 4000} {
		for _, v := range families {
			t.Run(fmt.Sprintf("ping%d/%d", size, v), func(t *testing.T) {
				if err := from.Ping(at(v), size, netns.Patience); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// N3: both ends have the MACs of the result, and changing the host's one later,
// as udev does, breaks no open flow and no new one.
func TestPrivilegedN3MACChange(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	node.Serve(t, 80)
	outside.Serve(t, 80)
	for _, end := range []struct {
		ns *netns.NS
		is netns.Interface
	}{{node.NS, a.Host}, {a.NS, a.Inside}} {
		if got := devices(t, end.ns)[end.is.Name].MAC; got == "" || !strings.EqualFold(got, end.is.MAC) {
			t.Errorf("%s: MAC of %s: want that of the result, %s, got %q", end.ns.Name, end.is.Name, end.is.MAC, got)
		}
	}
	flow, err := outside.Open(call("tcp", a.V4, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	node.IP(t, "link set "+a.Host.Name+" address 02:00:00:00:00:77")
	if _, err := flow.Ask(); err != nil {
		t.Errorf("open connection after the change: %v", err)
	}
	each(t, protos, func(t *testing.T, proto string, family int) {
		ask(t, outside.NS, call(proto, a.Addr(family), 80), want{server: "a"})
		ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(family), 8080), want{server: "a"})
		ask(t, a.NS, call(proto, outside.Addr(family), 80), want{server: outside.Name})
		ask(t, a.NS, call(proto, node.Uplinks[0].Addr(family), 80), want{server: node.Name})
		ask(t, node.NS, call(proto, a.Addr(family), 80), want{server: "a"})
		ask(t, a.NS, call(proto, b.Addr(family), 80), want{server: "b"})
		ask(t, b.NS, call(proto, a.Addr(family), 80), want{server: "a"})
	})
}

// N2: a pod that lost its permanent neighbour entries asks for its gateway and is answered.
func TestPrivilegedN2LostNeighbours(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	outside := c.Outside()
	outside.Serve(t, 80)
	a, _ := serve(t, c.Nodes[0], netns.PodSpec{Name: "a"})
	a.IP(t, "neigh flush dev "+a.Inside.Name+" nud permanent")
	each(t, protos, func(t *testing.T, proto string, family int) {
		ask(t, a.NS, call(proto, outside.Addr(family), 80), want{server: outside.Name})
	})
}

// N4: both ends have the uplinks' smallest MTU, or the configured one.
func TestPrivilegedN4MTU(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2, MTU: 1500})
	node := c.Nodes[0]
	node.IP(t, "link set up1 mtu 1420")
	for _, tc := range []struct {
		name string
		conf map[string]any
		want int
	}{
		{"uplinks", nil, 1420},
		{"configured", map[string]any{"mtu": 1300}, 1300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := serve(t, node, netns.PodSpec{Name: tc.name, Conf: tc.conf})
			host, inside := devices(t, node.NS)[p.Host.Name].MTU, devices(t, p.NS)[p.IfName].MTU
			if host != tc.want || inside != tc.want {
				t.Errorf("MTU: want %d on both ends, got host %d, pod %d", tc.want, host, inside)
			}
			for _, v := range families {
				big := call("udp4000", p.Addr(v), 80)
				if v == 6 { // the first one is lost: it teaches the sender the MTU
					first := big
					first.Timeout = 200 * time.Millisecond
					_, _ = c.Outside().Ask(first)
				}
				ask(t, c.Outside().NS, big, want{server: p.Name})
			}
		})
	}
}

// N8: one family alone works, and gets no address of the other.
func TestPrivilegedN8Families(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	outside.Serve(t, 80)
	for i, has := range [][]int{{4}, {6}, {4, 6}} {
		t.Run(fmt.Sprint(has), func(t *testing.T) {
			port := 8080 + i
			p, _ := serve(t, node, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Families: has, Ports: netns.Both(port, 80)})
			if n := len(p.Result.IPs); n != len(has) {
				t.Errorf("addresses: want %d, got %d: %+v", len(has), n, p.Result.IPs)
			}
			for _, v := range has {
				for _, proto := range protos {
					ask(t, p.NS, call(proto, outside.Addr(v), 80), want{outside.Name, only(p.Addr(v)), netip.AddrPort{}})
					ask(t, outside.NS, call(proto, p.Addr(v), 80), want{p.Name, only(outside.Addr(v)), netip.AddrPort{}})
					ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), uint16(port)), want{p.Name, only(outside.Addr(v)), netip.AddrPort{}})
				}
			}
			if len(has) == 1 {
				other := 10 - has[0]
				refuse(t, outside.NS, call("udp", node.Uplinks[0].Addr(other), uint16(port)))
			}
		})
	}
}
