// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// B6: the limit goes with the pod, by DEL or without it; the next pod with its address or
// with its interface's number inherits nothing.
func TestPrivilegedB6Gone(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.Add(t, netns.PodSpec{Name: "other"})
	set := tables(t, node)
	one := map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": node.DataDir, "ranges": [][]map[string]any{
		{{"subnet": "10.244.0.0/24", "rangeStart": "10.244.0.200", "rangeEnd": "10.244.0.200"}},
		{{"subnet": "fd00:244::/64", "rangeStart": "fd00:244::200", "rangeEnd": "fd00:244::200"}},
	}}}
	slow := &netns.Bandwidth{IngressRate: 1e6, EgressRate: 1e6}

	first := node.Add(t, netns.PodSpec{Name: "first", Conf: one, Bandwidth: slow})
	setLimits(t, first, "2M")
	first.Del(t)
	second := node.Add(t, netns.PodSpec{Name: "second", Conf: one})
	if second.V4 != first.V4 || second.V6 != first.V6 {
		t.Fatalf("addresses: want %s and %s again, got %s and %s", first.V4, first.V6, second.V4, second.V6)
	}
	t.Run("Address", func(t *testing.T) { unlimited(t, c, second) })
	setLimits(t, second, "2M")
	second.Del(t)
	if left := rows(t, set.Limits.All()); len(left) > 0 {
		t.Errorf("limits of deleted pods: %+v", left)
	}

	// A device's number comes again after 2^31 others, or in a node's next namespace.
	dead := node.Add(t, netns.PodSpec{Name: "dead", Bandwidth: slow})
	index := devices(t, node.NS)[dead.Host.Name].Index
	dead.Vanish()
	if err := netns.Poll(func() error {
		if _, still := devices(t, node.NS)[dead.Host.Name]; still {
			return fmt.Errorf("device %s is still there", dead.Host.Name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	inherit(t, set, index, index+1)
	heir := node.Add(t, netns.PodSpec{Name: "heir"})
	if got := devices(t, node.NS)[heir.Host.Name].Index; got != index+1 {
		t.Fatalf("interface index: want %d, got %d", index+1, got)
	}
	t.Run("Index", func(t *testing.T) { unlimited(t, c, heir) })
	conf := node.Conf()
	conf["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": "other", "ifname": "eth0"}, map[string]any{"containerID": "heir", "ifname": "eth0"}}
	if _, err := node.Exec("GC", nil, conf); err != nil {
		t.Errorf("GC: %v", err)
	}
	if left := rows(t, set.Limits.All()); len(left) > 0 {
		t.Errorf("limits after GC: %+v", left)
	}
}

// inherit gives what was left of a device to the number of the next one.
func inherit(t *testing.T, set *maps.Set, index, next int) {
	t.Helper()
	iface, err := set.Ifaces.Get(index)
	if err != nil {
		t.Fatalf("without DEL the row stays: %v", err)
	}
	iface.Ifindex = next
	if err := set.Ifaces.Put(iface); err != nil {
		t.Fatal(err)
	}
	for _, d := range []maps.Direction{maps.Ingress, maps.Egress} {
		row, err := set.Limits.Get(index, d)
		if err != nil {
			t.Fatalf("without DEL the row stays: %v", err)
		}
		row.Ifindex = next
		if err := set.Limits.Put(row); err != nil {
			t.Fatal(err)
		}
	}
}

// unlimited: a pod without limits has no row, no flag, no qdisc that it would pay for,
// and nothing that holds it.
func unlimited(t *testing.T, c *cluster, p *netns.Pod) {
	t.Helper()
	set := tables(t, p.Node)
	index := devices(t, p.Node.NS)[p.Host.Name].Index
	for _, l := range rows(t, set.Limits.All()) {
		if l.Ifindex == index {
			t.Errorf("limits has %+v", l)
		}
	}
	const flags = maps.PodLimitIngress | maps.PodLimitEgress
	if row, err := set.Ifaces.Get(index); err != nil || row.Flags&flags != 0 {
		t.Errorf("ifaces has flags %x (%v)", row.Flags, err)
	}
	for _, v := range families {
		if row, err := set.Pods.Get(p.Addr(v)); err != nil || row.Flags&flags != 0 {
			t.Errorf("pods: %s has flags %x (%v)", p.Addr(v), row.Flags, err)
		}
	}
	for _, end := range []struct {
		ns  *netns.NS
		dev string
	}{{p.NS, p.IfName}, {p.Node.NS, p.Host.Name}} {
		for line := range strings.Lines(end.ns.MustRun(t, "", "tc", "qdisc", "show", "dev", end.dev)) {
			if !strings.HasPrefix(line, "qdisc noqueue ") && !strings.HasPrefix(line, "qdisc clsact ") {
				t.Errorf("%s of %s has a %s", end.dev, end.ns.Name, line)
			}
		}
	}
	const much = 20e6
	for direction, s := range bothWays(p, c.Outside()) {
		s.Proto, s.Offer, s.Window = "udp", 2*much, 300*time.Millisecond
		if r, err := s.Rate(); err != nil || r < much && !netns.Emulated() || r < 3e6 {
			t.Errorf("%s: want no limit, got %.2f Mbit/s (%v)", direction, r/1e6, err)
		}
	}
}
