// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// ICMP types that tell of a TTL that ended.
var timeExceeded = map[int]uint8{4: 11, 6: 3}

// I1: a trace by UDP and by TCP shows every router on the way, the node as one of them,
// and at the end the answer: through a hostPort, to a pod, by masquerade, between pods
// and from a pod to its own hostPort.
func TestPrivilegedI1Traceroute(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, peer := c.Nodes[0], c.Outside()
	far := extend(t, c, 1500)
	far.Serve(t, 80)
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	masq, _ := serve(t, node, netns.PodSpec{Name: "masq", Conf: masquerading()})
	unlimit(t, node.NS)
	for _, v := range families { // or the trace proves nothing
		ask(t, masq.NS, call("udp", far.Addr(v), 80), want{server: far.Name, remote: only(node.Uplinks[0].Addr(v))})
	}
	up := node.Uplinks[0].Addr
	ofNode := func(v int) []netip.Addr { // what it may call itself towards a pod
		own := []netip.Addr{up(v), netip.MustParseAddr("fe80::1")}
		if v == 4 {
			own[1] = netip.MustParseAddr("169.254.1.1")
		}
		return own
	}
	hop := func(table map[int]netip.Addr) func(int) []netip.Addr {
		return func(v int) []netip.Addr { return only(table[v]) }
	}
	byUplink := func(v int) []netip.Addr { return only(up(v)) }
	byPeer := func(v int) []netip.Addr { return only(peer.Addr(v)) }
	nearPeer := func(v int) []netip.Addr {
		return only(map[int]netip.Addr{4: netip.MustParseAddr("10.20.0.1"), 6: netip.MustParseAddr("fd00:20::1")}[v])
	}
	for _, tc := range []struct {
		name string
		from *netns.NS
		to   func(int) netip.Addr
		port uint16
		hops []func(int) []netip.Addr
	}{
		{"HostPort", far.NS, up, 8080, []func(int) []netip.Addr{hop(beyondNear), nearPeer, byUplink}},
		{"Pod", far.NS, a.Addr, 80, []func(int) []netip.Addr{hop(beyondNear), nearPeer, byUplink}},
		{"Masquerade", masq.NS, far.Addr, 80, []func(int) []netip.Addr{ofNode, byPeer, hop(beyondMiddle)}},
		{"FromPod", a.NS, far.Addr, 80, []func(int) []netip.Addr{ofNode, byPeer, hop(beyondMiddle)}},
		{"PodPod", masq.NS, a.Addr, 80, []func(int) []netip.Addr{ofNode}},
		{"PodHostPort", masq.NS, up, 8080, []func(int) []netip.Addr{ofNode}},
		{"SelfHostPort", a.NS, up, 8080, nil}, // to itself there is no hop
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, v int) {
				for ttl := 1; ttl <= len(tc.hops)+1; ttl++ {
					o, err := tc.from.Try(call(proto, tc.to(v), tc.port), ttl)
					if err == nil {
						err = checkHop(o, v, ttl, tc.hops)
					}
					if err != nil {
						t.Errorf("TTL %d: %v", ttl, err)
					}
				}
			})
		})
	}
}

func checkHop(o netns.Outcome, v, ttl int, hops []func(int) []netip.Addr) error {
	if ttl > len(hops) {
		if !o.Answered {
			return fmt.Errorf("want an answer, got %s", o)
		}
		return nil
	}
	if want := hops[ttl-1](v); o.Answered || o.Type != timeExceeded[v] || !slices.Contains(want, o.By) {
		return fmt.Errorf("want time exceeded by one of %v, got %s", want, o)
	}
	return nil
}
