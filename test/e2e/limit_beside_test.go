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
	{"fq", []string{"qdisc add dev %s root handle 77: fq"}}, // which paces by departure times
	{"mq", []string{
		"qdisc add dev %s root handle 77: mq", "qdisc add dev %s parent 77:1 handle 781: pfifo limit 2000",
		"qdisc add dev %s parent 77:2 handle 782: tbf rate 2gbit burst 1mb limit 4mb", "qdisc add dev %s parent 77:3 handle 783: htb default 10", "class add dev %s parent 783: classid 783:10 htb rate 2gbit",
		"qdisc add dev %s parent 77:4 handle 784: pfifo limit 2000",
	}},
}

// multiqueue plugs the uplink up0 anew, with four queues: mq wants a device that has some.
func multiqueue(t *testing.T, c *cluster) {
	t.Helper()
	node, outside := c.Nodes[0], c.Outside()
	up := node.Uplinks[0]
	node.IP(t, "link del up0")
	outside.IP(t, "link add port0 numtxqueues 4 numrxqueues 4 type veth peer name up0 numtxqueues 4 numrxqueues 4 netns "+node.Path(),
		"link set port0 master br0 up")
	node.IP(t, "link set up0 up", fmt.Sprintf("addr add %s/24 dev up0", up.V4), fmt.Sprintf("addr add %s/64 dev up0 nodad", up.V6),
		"route add default via 10.10.0.1", "route add default via fd00:10::1")
	outside.Settle(t, "port0")
	outside.Settle(t, outside.Dev, outside.V6)
	node.Settle(t, "up0", up.V6)
}

// B7: limits hold beside foreign filters and programs of all kinds on the uplink, which has
// several queues, and beside a foreign qdisc at its root; all those are afterwards as they were, and no
// device but the pods' is made.
func TestPrivilegedB7Beside(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	multiqueue(t, c)
	node := c.Nodes[0]
	at := map[*foreign]hook{}
	hooks := []hook{{node, "up0", false}, {node, "up0", true}}
	for _, h := range hooks { // before us
		at[h.clsact(t, "first filter", 1)] = h
	}
	node.Add(t, netns.PodSpec{Name: "loads"})
	config, err := tables(t, node).Config.Get()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks {
		at[h.clsact(t, "last filter", 60000)] = h
		if config.Features&maps.FeatureTCX != 0 {
			at[h.link(t, "tcx head", link.Head())] = h
			at[h.link(t, "tcx tail", link.Tail())] = h
		}
	}
	for _, other := range foreignQdiscs {
		t.Run(other.kind, func(t *testing.T) {
			for _, line := range other.lines {
				_, err := node.Run("", append([]string{"tc"}, strings.Fields(fmt.Sprintf(line, "up0"))...)...)
				if err != nil && strings.Contains(err.Error(), "qdisc kind is unknown") {
					t.Skipf("the kernel has no qdisc %s", other.kind)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			besideQdisc(t, c, other.kind, at)
			node.MustRun(t, "", "tc", "qdisc", "del", "dev", "up0", "root")
		})
	}
}

// besideQdisc runs a pod from ADD to DEL.
func besideQdisc(t *testing.T, c *cluster, kind string, at map[*foreign]hook) {
	t.Helper()
	node := c.Nodes[0]
	before := qdiscs(t, node.NS, "up0")
	if !strings.Contains(before, "qdisc "+kind+" 77:") {
		t.Fatalf("no qdisc %s at up0: %s", kind, before)
	}
	seen := map[*foreign]uint64{}
	for f := range at {
		seen[f] = f.count(t)
	}
	p := node.Add(t, netns.PodSpec{Name: kind, Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 20e6, EgressRate: 10e6}})
	setLimits(t, p, "10M")
	for _, proto := range []string{"tcp", "udp"} {
		var both sync.WaitGroup
		for direction, s := range bothWays(p, c.Outside()) {
			s.Proto = proto
			both.Go(func() { t.Run(direction+"/"+proto, func(t *testing.T) { holds(t, s, 10e6) }) })
		}
		both.Wait()
	}
	noIFB(t, node.NS)
	p.Del(t)
	if after := qdiscs(t, node.NS, "up0"); after != before {
		t.Errorf("qdiscs of up0: want as before\n%sgot\n%s", before, after)
	}
	for f, h := range at {
		if f.count(t) == seen[f] {
			t.Errorf("%s saw nothing", f.name)
		}
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
