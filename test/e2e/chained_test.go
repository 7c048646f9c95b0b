// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// wireChained makes a cluster whose pods are made by another plugin, and culvert behind it.
func wireChained(t *testing.T, l netns.Layout, chain netns.Chain, expected ...string) *cluster {
	t.Helper()
	c := wire(t, l, expected...)
	for _, n := range c.Nodes {
		n.Chain = chain
	}
	return c
}

// eachChain runs a test behind each kind of plugin.
func eachChain(t *testing.T, run func(t *testing.T, chain netns.Chain)) {
	t.Helper()
	for name, chain := range netns.Chains() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, chain)
		})
	}
}

// htbCount is not of a qdisc's parameters.
var htbCount = regexp.MustCompile(` direct_packets_stat \d+`)

// traffic is the qdiscs and filters of a device, as tc shows them.
func traffic(t *testing.T, ns *netns.NS, dev string) string {
	t.Helper()
	out := htbCount.ReplaceAllString(ns.MustRun(t, "", "tc", "qdisc", "show", "dev", dev), "")
	for _, hook := range []string{"ingress", "egress"} {
		got, err := ns.Run("", "tc", "filter", "show", "dev", dev, hook)
		if err == nil {
			out += got
		}
	}
	return out
}

// untouched says whether nothing of culvert is on the pod's veth.
func untouched(t *testing.T, p *netns.Pod) {
	t.Helper()
	for _, end := range []struct {
		ns  *netns.NS
		dev string
	}{{p.Node.NS, p.Host.Name}, {p.NS, p.IfName}} {
		for line := range strings.Lines(traffic(t, end.ns, end.dev)) {
			if !strings.HasPrefix(line, "qdisc noqueue ") {
				t.Errorf("%s of %s has: %s", end.dev, end.ns.Name, line)
			}
		}
	}
}

// X3: behind bridge, ptp and a routed veth a pod has hostPorts and limits; its own plugin's
// interface is as it was once DEL has been there, before the veth goes or after.
func TestPrivilegedX3Chained(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e8, EgressRate: 1e8}})
		p.Serve(t, 80)
		if err := p.Check(); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		each(t, small, func(t *testing.T, proto string, family int) {
			ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(family), 8080), want{server: "pod", remote: only(c.Outside().Addr(family))})
			ask(t, node.NS, call(proto, node.Uplinks[0].Addr(family), 8080), want{server: "pod"})
		})
		if err := p.TryDelOurs(); err != nil {
			t.Fatalf("DEL: %v", err)
		}
		untouched(t, p)
		each(t, []string{"tcp"}, func(t *testing.T, proto string, family int) {
			refuse(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(family), 8080))
			ask(t, c.Outside().NS, call(proto, p.Addr(family), 80), want{server: "pod"})
		})
		if err := p.TryDelOurs(); err != nil {
			t.Errorf("DEL again: %v", err)
		}
	})
}
