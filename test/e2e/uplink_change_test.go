// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// carries says which of the node's devices carry from_uplink.
func carries(t *testing.T, n *netns.Node) (names []string) {
	t.Helper()
	for name, l := range devices(t, n.NS) {
		if strings.HasPrefix(name, "up") && slices.Contains(hook{n, name, false}.programs(t), pinned(t, n, "from_uplink")) {
			names = append(names, name)
		}
		_ = l
	}
	slices.Sort(names)
	return names
}

func (c *cluster) gc(t *testing.T, n *netns.Node) {
	t.Helper()
	if _, err := n.Exec("GC", nil, n.Conf()); err != nil {
		t.Errorf("GC: %v", err)
	}
}

// warned fails unless status has a warning for each of parts, with a remedy, and no other.
func warned(t *testing.T, n *netns.Node, parts ...string) {
	t.Helper()
	s := status(t, n)
	var got []string
	for _, w := range s.Warnings {
		if got = append(got, w.What); w.Remedy == "" {
			t.Errorf("%q has no remedy", w.What)
		}
	}
	said(t, got, parts...)
	if len(s.Faults) > 0 {
		t.Errorf("faults: %v", s.Faults)
	}
}

// hopLife is how long a processor goes by what the FIB said (map hops): 1<<27 ns, by a clock that
// ticks every 10 ms at the slowest.
const hopLife = 150 * time.Millisecond

// L7, N5: an uplink that is added later, renamed, made anew or readdressed is served after the
// next ADD, GC or reconcile; STATUS says what is missing until then; one that is none any
// more is let go of.
func TestPrivilegedL7UplinkChanges(t *testing.T) {
	t.Parallel()
	repairs := map[string]func(*testing.T, *cluster, *netns.Node){
		"ADD": func(t *testing.T, _ *cluster, n *netns.Node) {
			n.Add(t, netns.PodSpec{Name: "next", Conf: map[string]any{"ipMasq": true}}).Del(t)
		},
		"GC":        func(t *testing.T, c *cluster, n *netns.Node) { c.gc(t, n) },
		"Reconcile": func(t *testing.T, _ *cluster, n *netns.Node) { reconcile(t, n) },
	}
	for name, repair := range repairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := wire(t, netns.Layout{})
			node, outside := c.Nodes[0], c.Outside()
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: map[string]any{"ipMasq": true}})
			outside.Serve(t, 80)
			reach := func(when string, from *netns.Peer, up netns.Uplink) {
				t.Helper()
				for _, v := range families {
					ask(t, from.NS, call("tcp", up.Addr(v), 8080), want{server: "a"})
				}
				if t.Failed() {
					t.Fatalf("%s: %s is not served", when, up.Dev)
				}
			}
			reach("at first", outside, node.Uplinks[0])
			warned(t, node)

			second := netns.NewPeer(t, 1)
			up1 := node.AddUplink(t, second, 1, 1500)
			warned(t, node, "uplink up1 lacks the programs")
			refuse(t, second.NS, call("tcp", up1.V4, 8080))
			repair(t, c, node)
			reach("added", second, up1)
			warned(t, node)

			node.IP(t, "link set up1 down", "link set up1 name up9", "link set up9 up",
				fmt.Sprintf("addr replace %s/64 dev up9 nodad", up1.V6))
			repair(t, c, node)
			up1.Dev = "up9"
			node.Settle(t, "up9", up1.V6)
			reach("renamed", second, up1)

			node.IP(t, "link del up9")
			node.Uplinks = node.Uplinks[:1]
			repair(t, c, node)
			if got := carries(t, node); !slices.Equal(got, []string{"up0"}) {
				t.Errorf("deleted: programs on %v", got)
			}
			<-time.After(hopLife) // or the answer takes the way of the device that is gone
			up1 = node.AddUplink(t, second, 1, 1500)
			repair(t, c, node)
			reach("made anew", second, up1)

			node.IP(t, "addr flush dev up1")
			repair(t, c, node)
			if got := carries(t, node); !slices.Equal(got, []string{"up0"}) && name != "ADD" { // it attaches alone
				t.Errorf("no uplink any more: programs on %v", got)
			}

			old := node.Uplinks[0]
			up := netns.Uplink{Dev: "up0", V4: old.V4.Next(), V6: old.V6.Next()}
			node.IP(t, fmt.Sprintf("addr del %s/24 dev up0", old.V4), fmt.Sprintf("addr del %s/64 dev up0", old.V6),
				fmt.Sprintf("addr add %s/24 dev up0", up.V4), fmt.Sprintf("addr add %s/64 dev up0 nodad", up.V6),
				"route replace default via 10.10.0.1", "route replace default via fd00:10::1")
			node.Settle(t, "up0", up.V6)
			reach("readdressed, at once", outside, up)
			repair(t, c, node)
			ask(t, a.NS, call("tcp", outside.V4, 80), want{server: outside.Name, remote: only(up.V4)})
			outside.IP(t, fmt.Sprintf("route replace %s via %s", node.PodRange(6), up.V6), fmt.Sprintf("route replace %s via %s", node.PodRange(4), up.V4))
			ask(t, a.NS, call("tcp", outside.V6, 80), want{server: outside.Name, remote: only(up.V6)})

			node.IP(t, "link set up0 down", "link set up0 up", fmt.Sprintf("addr replace %s/64 dev up0 nodad", up.V6),
				"route replace default via 10.10.0.1", "route replace default via fd00:10::1")
			node.Settle(t, "up0", up.V6)
			reach("down and up, at once", outside, up)
		})
	}
}

// The programs leave an uplink with the last network that wants it, and come back with the
// next: networks with other uplinks stay.
func TestPrivilegedL7UplinksOfNetworks(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node := c.Nodes[0]
	pods := 0
	network := func(name string, uplinks ...string) map[string]any {
		pods++
		conf := map[string]any{"name": name, "ipam": map[string]any{
			"type": "static", "addresses": []any{map[string]any{"address": fmt.Sprintf("10.244.0.%d/32", 100+pods)}},
		}}
		if len(uplinks) > 0 {
			conf["uplinks"] = uplinks
		}
		return conf
	}
	first := node.Add(t, netns.PodSpec{Name: "a", Conf: network("one", "up0")})
	second := node.Add(t, netns.PodSpec{Name: "b", Conf: network("two.dots", "up1")})
	expect := func(when string, want ...string) {
		t.Helper()
		if got := carries(t, node); !slices.Equal(got, want) {
			t.Errorf("%s: programs on %v, want %v", when, got, want)
		}
	}
	expect("both", "up0", "up1")
	node.Add(t, netns.PodSpec{Name: "c", Conf: network("one", "up0")}).Del(t)
	c.gc(t, node)
	reconcile(t, node)
	expect("after other verbs", "up0", "up1")
	second.Del(t)
	expect("one is gone", "up0")
	rule := node.Add(t, netns.PodSpec{Name: "d", Conf: network("three")})
	expect("by the rule", "up0", "up1")
	rule.Del(t)
	expect("without the rule", "up0")
	first.Del(t)
	expect("none")
	node.Add(t, netns.PodSpec{Name: "e", Conf: network("one", "up1")}).Del(t)
	expect("none again")
}
