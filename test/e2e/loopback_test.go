// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// The addresses of the host that only the host may use.
var loopback = map[int]netip.Addr{4: netip.MustParseAddr("127.0.0.1"), 6: netip.MustParseAddr("::1")}

// H2: the host reaches a hostPort by 127.0.0.1, ::1 and its own addresses, with its
// source left to the kernel or bound to any other local address, several at once too.
// The pod sees a caller on 127/8 or ::1 as its gateway, and any other as it is.
func TestPrivilegedH2Loopback(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node := c.Nodes[0]
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	hidden := map[int]netip.Addr{4: netip.MustParseAddr("169.254.1.1"), 6: netip.MustParseAddr("fe80::1")}
	second := map[int]netip.Addr{4: netip.MustParseAddr("127.0.0.2"), 6: loopback[6]}
	for _, tc := range []struct {
		name         string
		to, from     func(int) netip.Addr // from nil: the kernel's choice
		seenAsHidden bool
	}{
		{"Loopback", at(loopback), nil, true},
		{"LoopbackFromItself", at(loopback), at(loopback), true},
		{"LoopbackFromSecond", at(loopback), at(second), true},
		{"LoopbackFromUplink0", at(loopback), node.Uplinks[0].Addr, false},
		{"LoopbackFromUplink1", at(loopback), node.Uplinks[1].Addr, false},
		{"Uplink0", node.Uplinks[0].Addr, nil, false},
		{"Uplink0FromLoopback", node.Uplinks[0].Addr, at(loopback), true},
		{"Uplink0FromSecond", node.Uplinks[0].Addr, at(second), true},
		{"Uplink0FromUplink1", node.Uplinks[0].Addr, node.Uplinks[1].Addr, false},
		{"Uplink1FromUplink0", node.Uplinks[1].Addr, node.Uplinks[0].Addr, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, v int) {
				call := call(proto, tc.to(v), 8080)
				w := want{server: "a", remote: only(hidden[v])}
				if tc.from != nil {
					call.From = netip.AddrPortFrom(tc.from(v), 0)
				}
				if !tc.seenAsHidden {
					w.remote = []netip.Addr{call.From.Addr()}
					if tc.from == nil {
						w.remote = only(tc.to(v))
					}
				}
				for range 3 {
					ask(t, node.NS, call, w)
				}
			})
		})
	}
	t.Run("SamePortFromEachAddress", func(t *testing.T) {
		each(t, small, func(t *testing.T, proto string, v int) { samePort(t, node, proto, v, second[v]) })
	})
}

// samePort opens flows from several local addresses, all with one port, to several
// addresses of one hostPort: towards the pod some of them look the same.
func samePort(t *testing.T, node *netns.Node, proto string, v int, second netip.Addr) {
	var flows []*netns.Flow
	for _, from := range []netip.Addr{loopback[v], second, node.Uplinks[0].Addr(v)} {
		if v == 6 && from == second && len(flows) > 0 {
			continue // IPv6 has one loopback address
		}
		var socket *netns.Flow // UDP has one for all it calls
		for _, to := range []netip.Addr{loopback[v], node.Uplinks[0].Addr(v), node.Uplinks[1].Addr(v)} {
			if socket != nil {
				flows = append(flows, socket.Toward(netip.AddrPortFrom(to, 8080)))
				continue
			}
			c := call(proto, to, 8080)
			c.From = netip.AddrPortFrom(from, 7777)
			f, err := node.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			flows = append(flows, f)
			if proto == "udp" {
				socket = f
			}
		}
	}
	for range 3 {
		for _, f := range flows {
			if r, err := f.Ask(); err != nil || r.Server != "a" {
				t.Errorf("%s: want an answer by a, got %+v (%v)", f, r, err)
			}
		}
	}
}

// H10: with `loopback: false` 127.0.0.1 and ::1 stay the host's, every other address
// is the pod's, and no sysctl opens loopback.
func TestPrivilegedH10NoLoopback(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: hostPorts(map[string]any{"loopback": false})})
	node.Serve(t, 8080)
	each(t, small, func(t *testing.T, proto string, v int) {
		up := node.Uplinks[0].Addr(v)
		ask(t, node.NS, call(proto, loopback[v], 8080), want{server: node.Name})
		ask(t, node.NS, call(proto, up, 8080), want{server: "a"})
		ask(t, c.Outside().NS, call(proto, up, 8080), want{server: "a"})
	})
	if on := node.GetSysctl(t, "net/ipv4/conf/lo/route_localnet"); on != "0" {
		t.Errorf("net.ipv4.conf.lo.route_localnet: want 0, got %s", on)
	}
	// Beside it a pod that is open on loopback.
	serve(t, node, netns.PodSpec{Name: "b", Ports: netns.Both(8081, 80)})
	each(t, small, func(t *testing.T, proto string, v int) {
		ask(t, node.NS, call(proto, loopback[v], 8080), want{server: node.Name})
		ask(t, node.NS, call(proto, loopback[v], 8081), want{server: "b"})
	})
}

// H10: a local address inside excludeCIDRs, such as a service's, is never captured,
// whoever calls it. (It lies on lo here: not every kernel has dummy devices.)
func TestPrivilegedH10Exclude(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	node.IP(t, "addr add 10.96.0.53/32 dev lo", "addr add fd00:96::53/128 dev lo nodad",
		"addr add 10.97.0.53/32 dev lo", "addr add fd00:97::53/128 dev lo nodad")
	for _, r := range []string{"10.96.0.0/15 via " + node.Uplinks[0].V4.String(), "fd00:96::/31 via " + node.Uplinks[0].V6.String()} {
		outside.IP(t, "route add "+r)
	}
	vip := map[int]netip.Addr{4: netip.MustParseAddr("10.96.0.53"), 6: netip.MustParseAddr("fd00:96::53")}
	beside := map[int]netip.Addr{4: netip.MustParseAddr("10.97.0.53"), 6: netip.MustParseAddr("fd00:97::53")}
	conf := hostPorts(map[string]any{"excludeCIDRs": []string{"10.96.0.0/16", "fd00:96::/64"}})
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: conf})
	b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: conf}) // one network, one configuration
	node.Serve(t, 8080)
	for _, from := range []*netns.NS{outside.NS, b.NS, node.NS} {
		t.Run(from.Name, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, v int) {
				ask(t, from, call(proto, vip[v], 8080), want{server: node.Name, local: netip.AddrPortFrom(vip[v], 8080)})
				ask(t, from, call(proto, beside[v], 8080), want{server: "a"})
				ask(t, from, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "a"})
			})
		})
	}
}

func hostPorts(section map[string]any) map[string]any { return map[string]any{"hostPorts": section} }

// at makes a table of two families a function, as the addresses of nodes and pods are.
func at(table map[int]netip.Addr) func(int) netip.Addr {
	return func(v int) netip.Addr {
		a, ok := table[v]
		if !ok {
			panic(fmt.Sprintf("no address of family %d", v))
		}
		return a
	}
}
