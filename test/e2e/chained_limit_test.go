// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// chainNames are the kinds of plugin before culvert, in order.
func chainNames() []string { return slices.Sorted(maps.Keys(netns.Chains())) }

// limitedChains makes a cluster with a node for each kind of plugin.
func limitedChains(t *testing.T, expected ...string) (*cluster, map[string]*netns.Node) {
	t.Helper()
	nodes := map[string]*netns.Node{}
	c := wire(t, netns.Layout{Nodes: len(netns.Chains())}, expected...)
	for i, name := range chainNames() {
		nodes[name] = c.Nodes[i]
		c.Nodes[i].Chain = netns.Chains()[name]
	}
	return c, nodes
}

// X3, B1: the rate holds at the wire in both directions, by TCP and UDP, towards every kind
// of peer and through a hostPort.
func TestPrivilegedX3B1Rate(t *testing.T) {
	netns.RequireRoot(t)
	const rate = 10e6
	c, nodes := limitedChains(t)
	for _, name := range chainNames() {
		t.Run(name, func(t *testing.T) {
			node := nodes[name]
			one := *c
			one.Net = &netns.Net{Nodes: []*netns.Node{node}, Peers: c.Peers}
			other := node.Add(t, netns.PodSpec{Name: "other"})
			turn := make(chan struct{}, 10)
			if netns.Emulated() {
				turn = make(chan struct{}, 2)
			}
			var all sync.WaitGroup
			for _, m := range rateCells(t, &one, other, rate) {
				m.stream.Warmup, m.stream.Window = 500*time.Millisecond, time.Second
				all.Go(func() {
					turn <- struct{}{}
					defer func() { <-turn }()
					t.Run(m.name, func(t *testing.T) { holds(t, m.stream, rate) })
				})
			}
			all.Wait()
		})
	}
}

// X3, B4: a rate without a burst works, one direction alone leaves the other free, 0 is no
// limit, two pods do not share.
func TestPrivilegedX3B4Variants(t *testing.T) {
	netns.RequireRoot(t)
	for _, name := range chainNames() {
		t.Run(name, func(t *testing.T) { limitVariants(t, wireChained(t, netns.Layout{}, netns.Chains()[name])) })
	}
}

// X3, B5: what a chained pod with CAP_NET_ADMIN does in its namespace gives it no more than
// its limit. Nothing of it takes another way than up the stack.
func TestPrivilegedX3B5Escape(t *testing.T) {
	netns.RequireRoot(t)
	const rate = 10e6
	c, nodes := limitedChains(t, "egress_limit", "source", "loopback")
	c.Outside().MustRun(t, quiet, "nft", "-f", "-")
	var all []*attacker
	for _, name := range chainNames() {
		a := newAttacker(t, c, nodes[name], rate)
		a.meters = []*meter{newMeter(t, noMark, noMark).hang(t, a.node.NS, a.pod.Host.Name, false)}
		all = append(all, a)
	}
	for _, what := range attacks {
		if !slices.Contains([]string{"PastTheQueue", "NoQdisc", "Segments", "Cut"}, what.name) {
			continue
		}
		t.Run(what.name, func(t *testing.T) {
			var busy sync.WaitGroup
			for _, a := range all {
				a.T = t
				busy.Go(func() {
					if what.name != "PastTheQueue" {
						_, _ = a.pod.Run("", "tc", "qdisc", "del", "dev", a.pod.IfName, "root") // may be gone
					}
					a.holds(what.arm, false)
				})
			}
			busy.Wait()
		})
	}
}

// X3, B6: a limit is changed while the pod runs, up, away and back, goes with DEL, and the
// next pod with the address inherits nothing.
func TestPrivilegedX3B6(t *testing.T) {
	netns.RequireRoot(t)
	c, nodes := limitedChains(t)
	outside := c.Outside()
	for _, name := range chainNames() {
		t.Run(name, func(t *testing.T) {
			node := nodes[name]
			one := oneAddress(node)
			p := node.Add(t, netns.PodSpec{Name: "limited", Conf: one, Bandwidth: &netns.Bandwidth{IngressRate: 10e6, EgressRate: 10e6}})
			throughSettings(t, p, outside, true, []setting{{"20M", 20e6}, {"none", 0}, {"10M", 10e6}})
			p.Del(t)
			next := node.Add(t, netns.PodSpec{Name: "next", Conf: one})
			if next.V4 != p.V4 || next.V6 != p.V6 {
				t.Fatalf("addresses: want %s and %s again, got %s and %s", p.V4, p.V6, next.V4, next.V6)
			}
			unlimited(t, c, next)
			setLimits(t, next, "2M")
			if err := next.TryDelOurs(); err != nil {
				t.Fatal(err)
			}
			untouched(t, next)
			noRows(t, next)
		})
	}
}

// oneAddress is a configuration whose IPAM plugin has one address of each family.
func oneAddress(n *netns.Node) map[string]any {
	var ranges [][]map[string]any
	for _, v := range families {
		first := fmt.Sprint(n.PodRange(v).Addr())
		last := map[int]string{4: first[:len(first)-1] + "200", 6: first + "200"}[v]
		ranges = append(ranges, []map[string]any{{"subnet": n.PodRange(v).String(), "rangeStart": last, "rangeEnd": last}})
	}
	return map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": n.DataDir, "ranges": ranges}}
}
