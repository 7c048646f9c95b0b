// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// foreignQdiscs are what somebody may have put at the root of an uplink; the rates are
// far above the limits.
var foreignQdiscs = []struct {
	kind  string
	lines []string // of tc -batch; %s is the device
}{
	{"tbf", []string{"qdisc add dev %s root handle 77: tbf rate 2gbit burst 1mb limit 4mb"}},
	{"htb", []string{
		"qdisc add dev %s root handle 77: htb default 10", "class add dev %s parent 77: classid 77:1 htb rate 3gbit",
		"class add dev %s parent 77:1 classid 77:10 htb rate 2gbit",
	}},
	{"fq_codel", []string{"qdisc add dev %s root handle 77: fq_codel limit 5000"}},
}

// B7: limits hold beside foreign filters and programs of all kinds on the uplink and
// beside a foreign qdisc at its root; all those are afterwards as they were, and no
// device but the pods' is made.
func TestPrivilegedB7Beside(t *testing.T) {
	netns.RequireRoot(t)
	for _, foreign := range foreignQdiscs {
		t.Run(foreign.kind, func(t *testing.T) {
			c := wire(t, netns.Layout{})
			node := c.Nodes[0]
			for _, line := range foreign.lines {
				argv := append([]string{"tc"}, strings.Fields(fmt.Sprintf(line, "up0"))...)
				if out, err := node.Run("", argv...); err != nil {
					if strings.Contains(err.Error(), "qdisc kind is unknown") {
						t.Skipf("the kernel has no qdisc %s", foreign.kind)
					}
					t.Fatalf("%v: %s", err, out)
				}
			}
			besideAll(t, c, foreign.kind)
		})
	}
}

func besideAll(t *testing.T, c *cluster, kind string) {
	t.Helper()
	node, outside := c.Nodes[0], c.Outside()
	before := qdiscs(t, node.NS, "up0")
	if !strings.Contains(before, "qdisc "+kind+" 77:") {
		t.Fatalf("no qdisc %s at up0: %s", kind, before)
	}
	var others []*foreign
	at := map[*foreign]hook{}
	add := func(h hook, f *foreign) { others, at[f] = append(others, f), h }
	for _, egress := range []bool{false, true} {
		h := hook{node, "up0", egress}
		add(h, h.clsact(t, "first filter", 1))
	}
	before = qdiscs(t, node.NS, "up0") // with clsact

	p := node.Add(t, netns.PodSpec{Name: "p", Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 20e6, EgressRate: 10e6}})
	for _, egress := range []bool{false, true} {
		h := hook{node, "up0", egress}
		add(h, h.clsact(t, "last filter", 60000))
		if config, err := tables(t, node).Config.Get(); err == nil && config.Features&maps.FeatureTCX != 0 {
			add(h, h.link(t, "tcx head", link.Head()))
			add(h, h.link(t, "tcx tail", link.Tail()))
		}
	}
	seen := map[*foreign]uint64{}
	for _, f := range others {
		seen[f] = f.count(t)
	}
	setLimits(t, p, "10M")
	for _, proto := range []string{"tcp", "udp"} {
		var both sync.WaitGroup
		for direction, s := range bothWays(p, outside) {
			s.Proto = proto
			both.Go(func() { t.Run(direction+"/"+proto, func(t *testing.T) { holds(t, s, 10e6) }) })
		}
		both.Wait()
	}
	for _, f := range others {
		if f.count(t) == seen[f] {
			t.Errorf("%s saw nothing", f.name)
		}
	}
	noIFB(t, node.NS)
	p.Del(t)
	if after := qdiscs(t, node.NS, "up0"); after != before {
		t.Errorf("qdiscs of up0: want as before\n%sgot\n%s", before, after)
	}
	for f, h := range at {
		if !slices.Contains(h.programs(t), f.id(t)) {
			t.Errorf("%s is gone", f.name)
		}
	}
	noIFB(t, node.NS)
}

// qdiscs are the qdiscs and classes of a device, as tc shows them.
func qdiscs(t *testing.T, ns *netns.NS, dev string) string {
	t.Helper()
	return ns.MustRun(t, "", "tc", "qdisc", "show", "dev", dev) + ns.MustRun(t, "", "tc", "class", "show", "dev", dev)
}

func noIFB(t *testing.T, ns *netns.NS) {
	t.Helper()
	if out := ns.MustRun(t, "", "ip", "link", "show", "type", "ifb"); out != "" {
		t.Errorf("ifb devices: %s", out)
	}
}
