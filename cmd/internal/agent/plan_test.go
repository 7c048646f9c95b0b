// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

func prefixes(list string) (out []netip.Prefix) {
	for s := range strings.FieldsSeq(list) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list string) (out []netip.Addr) {
	for s := range strings.FieldsSeq(list) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// routeLine says a route in a few words, and rowLine a row.
func routeLine(r netdev.RemoteRoute) string {
	switch {
	case r.Unreachable:
		return fmt.Sprintf("%s unreachable", r.Prefix)
	case r.Tunnel:
		return fmt.Sprintf("%s tunnel src %s", r.Prefix, r.Src)
	}
	return fmt.Sprintf("%s via %s", r.Prefix, r.Via)
}

func rowLine(r maps.Remote) string {
	s := fmt.Sprintf("%s %s %s", r.Prefix, r.Kind, r.Endpoint)
	if r.Kind == maps.RemoteTunnel {
		s += fmt.Sprintf(" from %s vni %d", r.Local, r.VNI)
	}
	return s
}

func lines[T any](list []T, line func(T) string) string {
	var out []string
	for _, e := range list {
		out = append(out, line(e))
	}
	return strings.Join(out, "\n")
}

// n1 is a node on one subnet of each family, with a peer there and one elsewhere.
var (
	n1Uplinks = []Uplink{{Name: "eth0", Index: 5, MTU: 1500, Addrs: prefixes("192.0.2.1/24 2001:db8::1/64")}}
	n1State   = kube.State{
		Node:   kube.Peer{Name: "n1", Addrs: addrs("192.0.2.1 2001:db8::1")},
		Peers:  []kube.Peer{{Name: "near", Addrs: addrs("192.0.2.2 2001:db8::2")}, {Name: "far", Addrs: addrs("198.51.100.3 2001:db8:3::3")}},
		Ranges: prefixes("10.1.1.0/24 fd00:1:1::/64"),
		Remote: []kube.Range{
			{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Node: "near", Via: addrs("192.0.2.2 2001:db8::2")},
			{Prefix: netip.MustParsePrefix("fd00:1:2::/64"), Node: "near", Via: addrs("192.0.2.2 2001:db8::2")},
			{Prefix: netip.MustParsePrefix("10.1.3.0/24"), Node: "far", Via: addrs("198.51.100.3 2001:db8:3::3")},
			{Prefix: netip.MustParsePrefix("fd00:1:3::/64"), Node: "far", Via: addrs("198.51.100.3 2001:db8:3::3")},
		},
	}
)

func TestPlanWays(t *testing.T) {
	const own = "10.1.1.0/24 unreachable\nfd00:1:1::/64 unreachable\n"
	tests := []struct {
		name         string
		tunnel       Tunnelling
		change       func(*kube.State)
		uplinks      []Uplink
		routes, rows string
		mtu          int
		addrs        string
	}{
		{
			name: "direct and tunnel, by peer", tunnel: TunnelAuto,
			routes: own + "10.1.2.0/24 via 192.0.2.2\nfd00:1:2::/64 via 2001:db8::2\n10.1.3.0/24 tunnel src 10.1.1.0\nfd00:1:3::/64 tunnel src fd00:1:1::",
			rows: "10.1.2.0/24 direct 192.0.2.2\nfd00:1:2::/64 direct 2001:db8::2\n10.1.3.0/24 tunnel 198.51.100.3 from 192.0.2.1 vni 1\n" +
				"fd00:1:3::/64 tunnel 198.51.100.3 from 192.0.2.1 vni 1\n192.0.2.2/32 node 192.0.2.2\n2001:db8::2/128 node 2001:db8::2",
			mtu: 1450, addrs: "10.1.1.0 fd00:1:1::",
		},
		{
			name: "by family: the peer has no IPv6 of ours", tunnel: TunnelAuto,
			change: func(s *kube.State) {
				s.Remote = s.Remote[:2]
				for i := range s.Remote {
					s.Remote[i].Via = addrs("192.0.2.2")
				}
				s.Peers = []kube.Peer{{Name: "near", Addrs: addrs("192.0.2.2")}}
			},
			routes: own + "10.1.2.0/24 via 192.0.2.2\nfd00:1:2::/64 tunnel src fd00:1:1::",
			rows:   "10.1.2.0/24 direct 192.0.2.2\nfd00:1:2::/64 tunnel 192.0.2.2 from 192.0.2.1 vni 1\n192.0.2.2/32 node 192.0.2.2",
			mtu:    1450, addrs: "10.1.1.0 fd00:1:1::",
		},
		{
			name: "IPv6 alone carries a tunnel too", tunnel: TunnelAuto,
			uplinks: []Uplink{{Name: "eth0", MTU: 1500, Addrs: prefixes("2001:db8::1/64")}, {Name: "eth1", MTU: 1400}},
			change: func(s *kube.State) {
				s.Node.Addrs = addrs("2001:db8::1")
				s.Remote = s.Remote[2:3]
			},
			routes: own + "10.1.3.0/24 tunnel src 10.1.1.0",
			rows:   "10.1.3.0/24 tunnel 2001:db8:3::3 from 2001:db8::1 vni 1",
			mtu:    1330, addrs: "10.1.1.0 fd00:1:1::",
		},
		{
			name: "all direct: the uplinks' MTU", tunnel: TunnelAuto,
			change: func(s *kube.State) { s.Remote = s.Remote[:1] },
			routes: own + "10.1.2.0/24 via 192.0.2.2",
			rows:   "10.1.2.0/24 direct 192.0.2.2\n192.0.2.2/32 node 192.0.2.2\n2001:db8::2/128 node 2001:db8::2",
			addrs:  "10.1.1.0 fd00:1:1::",
		},
		{
			name: "always", tunnel: TunnelAlways,
			change: func(s *kube.State) { s.Remote = s.Remote[:1] },
			routes: own + "10.1.2.0/24 tunnel src 10.1.1.0",
			rows:   "10.1.2.0/24 tunnel 192.0.2.2 from 192.0.2.1 vni 1",
			mtu:    1450, addrs: "10.1.1.0 fd00:1:1::",
		},
		{
			name: "never: the network knows the way, nothing is masqueraded", tunnel: TunnelNever,
			change: func(s *kube.State) { s.Remote = []kube.Range{s.Remote[0], s.Remote[2]} },
			routes: own + "10.1.2.0/24 via 192.0.2.2",
			rows:   "10.1.2.0/24 direct 192.0.2.2\n10.1.3.0/24 direct 198.51.100.3\n192.0.2.2/32 node 192.0.2.2\n2001:db8::2/128 node 2001:db8::2",
			addrs:  "10.1.1.0 fd00:1:1::",
		},
		{
			name: "a range without addresses has its node's; a translated address is left to routing", tunnel: TunnelAuto,
			change: func(s *kube.State) {
				s.Node.Addrs = addrs("203.0.113.1")
				s.Remote = []kube.Range{{Prefix: netip.MustParsePrefix("10.1.3.0/24"), Node: "far"}}
			},
			routes: own + "10.1.3.0/24 tunnel src 10.1.1.0",
			rows:   "10.1.3.0/24 tunnel 198.51.100.3 from invalid IP vni 1",
			mtu:    1450, addrs: "10.1.1.0 fd00:1:1::",
		},
		{
			name: "a range that drains, and a pod that stayed behind", tunnel: TunnelAuto,
			change: func(s *kube.State) {
				s.Ranges, s.Draining = prefixes("10.1.9.0/24"), prefixes("10.1.1.0/24 10.1.8.7/32")
				s.Pools = map[string][]netip.Prefix{"blue": prefixes("10.2.0.0/26")}
				s.Remote = nil
			},
			routes: "10.1.1.0/24 unreachable\n10.1.8.7/32 unreachable\n10.1.9.0/24 unreachable\n10.2.0.0/26 unreachable",
			addrs:  "10.1.9.0 10.1.1.0",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			state, uplinks := n1State, n1Uplinks
			state.Remote = slices.Clone(state.Remote)
			if test.change != nil {
				test.change(&state)
			}
			if test.uplinks != nil {
				uplinks = test.uplinks
			}
			plan := makePlan(Config{Tunnel: test.tunnel}, state, uplinks)
			if got := lines(plan.Routes, routeLine); inOrder(got) != inOrder(test.routes) {
				t.Errorf("routes:\n%s\nwant:\n%s", got, test.routes)
			}
			if got := lines(plan.Remotes, rowLine); inOrder(got) != inOrder(test.rows) {
				t.Errorf("rows:\n%s\nwant:\n%s", got, test.rows)
			}
			if plan.MTU != test.mtu || !slices.Equal(plan.Tunnel.Addrs, addrs(test.addrs)) {
				t.Errorf("MTU %d and %v, want %d and %s", plan.MTU, plan.Tunnel.Addrs, test.mtu, test.addrs)
			}
			if err := plan.unreached(); err != nil {
				t.Error(err)
			}
		})
	}
}

// inOrder sorts lines.
func inOrder(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}

// A range becomes near's, and one this node's own, while pods of far hold addresses of both: these
// have their ways before the ranges have theirs, or the pods would not be reached meanwhile.
func TestPlanOrder(t *testing.T) {
	state := n1State
	state.Remote = nil
	for _, r := range []string{"10.1.1.7/32 far", "10.1.2.0/24 near", "10.1.2.7/32 far", "fd00:1:1::7/128 far", "fd00:1:2::/64 near", "fd00:1:2::7/128 far"} {
		prefix, node, _ := strings.Cut(r, " ")
		state.Remote = append(state.Remote, kube.Range{Prefix: netip.MustParsePrefix(prefix), Node: node})
	}
	plan := makePlan(Config{Tunnel: TunnelAuto}, state, n1Uplinks)
	var routes, rows []netip.Prefix
	for _, r := range plan.Routes {
		routes = append(routes, r.Prefix)
	}
	for _, r := range plan.Remotes {
		rows = append(rows, r.Prefix)
	}
	for _, list := range [][]netip.Prefix{routes, rows} {
		for i, p := range list {
			for _, wider := range list[:i] {
				if wider.Overlaps(p) && wider.Bits() < p.Bits() {
					t.Errorf("%s is written before %s: %v", wider, p, list)
				}
			}
		}
	}
	if len(routes) != 8 || len(rows) != 8 { // two of the node's own; two nodes' addresses
		t.Errorf("routes: %v\nrows: %v", routes, rows)
	}
}

func TestPlanNoWay(t *testing.T) {
	state := n1State
	state.Remote = []kube.Range{
		{Prefix: netip.MustParsePrefix("10.1.4.0/24"), Node: "odd", Via: addrs("2001:db8:4::4")},
		{Prefix: netip.MustParsePrefix("10.1.5.0/24"), Node: "n1-before", Via: addrs("192.0.2.1")}, n1State.Remote[0],
	}
	state.Node.Addrs = addrs("192.0.2.1")
	plan := makePlan(Config{Tunnel: TunnelAuto}, state, []Uplink{{MTU: 1500, Addrs: prefixes("192.0.2.1/24")}})
	if err := plan.unreached(); err == nil || !strings.Contains(err.Error(), "10.1.4.0/24 of node odd, 10.1.5.0/24 of node n1-before") {
		t.Errorf("no way is told as %v", err)
	}
	if got := lines(plan.Routes, routeLine); !strings.Contains(got, "10.1.2.0/24 via 192.0.2.2") || strings.Contains(got, "10.1.4.0") || strings.Contains(got, "10.1.5.0") {
		t.Errorf("the others' routes: %s", got)
	}
}

// The MTU that the command line gives is the pods'; the tunnel's is what fits.
func TestPlanMTU(t *testing.T) {
	for _, test := range []struct{ given, pods, tunnel int }{{0, 1450, 1450}, {1400, 1400, 1450}, {1480, 1480, 1450}} {
		plan := makePlan(Config{Tunnel: TunnelAlways, MTU: test.given}, n1State, n1Uplinks)
		if plan.MTU != test.pods || plan.Tunnel.MTU != test.tunnel {
			t.Errorf("--mtu %d gives pods %d and the tunnel %d, want %d and %d", test.given, plan.MTU, plan.Tunnel.MTU, test.pods, test.tunnel)
		}
	}
}
