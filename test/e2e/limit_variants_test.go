// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// B4: a rate without a burst works, 0 is no limit, one direction alone works and leaves
// the other free; pods with one value each have all of it, while the others use theirs;
// what the configuration says wins over what the runtime asks for.
func TestPrivilegedB4Variants(t *testing.T) {
	netns.RequireRoot(t)
	limitVariants(t, wire(t, netns.Layout{}))
}

func limitVariants(t *testing.T, c *cluster) {
	t.Helper()
	node, outside := c.Nodes[0], c.Outside()
	rate := uint64(20e6)
	if netns.Emulated() {
		rate = 4e6
	}
	add := func(name string, b netns.Bandwidth, static map[string]any) *netns.Pod {
		var conf map[string]any
		if static != nil {
			conf = map[string]any{"bandwidth": static}
		}
		return node.Add(t, netns.PodSpec{Name: name, Bandwidth: &b, Conf: conf})
	}
	in1, in2 := add("in1", netns.Bandwidth{IngressRate: rate}, nil), add("in2", netns.Bandwidth{IngressRate: rate}, nil)
	out1, out2 := add("out1", netns.Bandwidth{EgressRate: rate}, nil), add("out2", netns.Bandwidth{EgressRate: rate}, nil)
	zero := add("zero", netns.Bandwidth{}, nil)
	static := add("static", netns.Bandwidth{IngressRate: 3 * rate, EgressRate: rate}, map[string]any{"ingressRate": rate, "egressRate": 0})
	toPod := func(p *netns.Pod) netns.Stream {
		return netns.Stream{Proto: "tcp", From: outside.NS, To: p.NS, Dst: p.V4}
	}
	fromPod := func(p *netns.Pod) netns.Stream {
		return netns.Stream{Proto: "tcp", From: p.NS, To: outside.NS, Dst: outside.V4}
	}
	if limits := rows(t, tables(t, node).Limits.All()); len(limits) != 5 {
		t.Errorf("limits: want 5 rows, got %+v", limits)
	}
	var all sync.WaitGroup
	for name, s := range map[string]netns.Stream{
		"in1": toPod(in1), "in2": toPod(in2), "out1": fromPod(out1), "out2": fromPod(out2), "static": toPod(static),
	} {
		all.Go(func() { t.Run(name, func(t *testing.T) { holds(t, s, rate) }) })
	}
	all.Wait()
	for name, s := range map[string]netns.Stream{
		"in1 egress": fromPod(in1), "out1 ingress": toPod(out1), "zero ingress": toPod(zero), "zero egress": fromPod(zero), "static egress": fromPod(static),
	} {
		s.Warmup, s.Window = 50*time.Millisecond, 150*time.Millisecond
		least := 5 * float64(rate)
		if netns.Emulated() {
			least = 1.2 * float64(rate)
		}
		if r, err := s.Rate(); err != nil || r < least {
			t.Errorf("%s: want no limit, got %.1f Mbit/s (%v)", name, r/1e6, err)
		}
	}
}

// B4: the rows of limits say what was asked for.
func TestPrivilegedB4Rows(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	p := node.Add(t, netns.PodSpec{Name: "p", Bandwidth: &netns.Bandwidth{IngressRate: 1e6, EgressRate: 2e6}})
	set := tables(t, node)
	ifindex := devices(t, node.NS)[p.Host.Name].Index
	for d, rate := range map[maps.Direction]uint64{maps.Ingress: 1e6, maps.Egress: 2e6} {
		if l, err := set.Limits.Get(ifindex, d); err != nil || l.Rate != rate || l.Burst == 0 {
			t.Errorf("limit %s: want rate %d and a burst, got %+v (%v)", d, rate, l, err)
		}
	}
}

// B4: a pod without limits pays nothing for those of others.
func TestPrivilegedB4Unlimited(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	for name, b := range map[string]*netns.Bandwidth{"nothing": nil, "zeros": {}, "burst": {IngressBurst: 1 << 20, EgressBurst: 1 << 20}} {
		t.Run(name, func(t *testing.T) { unlimited(t, c, c.Nodes[0].Add(t, netns.PodSpec{Name: name, Bandwidth: b})) })
	}
}
