// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

var chainedLimits = &netns.Bandwidth{IngressRate: 1e8, EgressRate: 1e8}

// noRows fails if a table names the pod's device or addresses.
func noRows(t *testing.T, p *netns.Pod) {
	t.Helper()
	set := tables(t, p.Node)
	for _, r := range rows(t, set.Ifaces.All()) {
		if r.Container == p.ID {
			t.Errorf("ifaces has %+v", r)
		}
	}
	for _, v := range families {
		if row, err := set.Pods.Get(p.Addr(v)); err == nil {
			t.Errorf("pods has %+v", row)
		}
	}
	for _, r := range rows(t, set.Hostports.All()) {
		if r.Pod4 == p.V4 || r.Pod6 == p.V6 {
			t.Errorf("hostports has %+v", r)
		}
	}
	index := devices(t, p.Node.NS)[p.Host.Name].Index
	for _, r := range rows(t, set.Limits.All()) {
		if r.Ifindex == index {
			t.Errorf("limits has %+v", r)
		}
	}
}

// X3, L1: an ADD that fails leaves the other plugin's interface as it was.
func TestPrivilegedX3L1Held(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		holder := node.Add(t, netns.PodSpec{Name: "holder", Ports: netns.Both(8080, 80)})
		p := node.Add(t, netns.PodSpec{Name: "second"})
		if err := p.TryDelOurs(); err != nil {
			t.Fatal(err)
		}
		untouched(t, p)
		_, err := p.AddOurs(map[string]any{"runtimeConfig": map[string]any{
			"portMappings": append(netns.Both(8081, 80), netns.Both(8080, 80)...), "bandwidth": chainedLimits,
		}})
		if netns.Code(err) != 100 || !strings.Contains(err.Error(), holder.ID) {
			t.Errorf("a port that is held: want error 100 that names the holder, got %v", err)
		}
		untouched(t, p)
		noRows(t, p)
		p.Serve(t, 80)
		ask(t, c.Outside().NS, call("tcp", p.V4, 80), want{server: "second"})
	})
}

// X3, L2, L3: ADD again cleans what the first one left; DEL succeeds without anything, again
// and in parallel, and after the veth went.
func TestPrivilegedX3L3Del(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		spec := netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Bandwidth: chainedLimits}
		p := node.Add(t, spec)
		before := traffic(t, node.NS, p.Host.Name)
		if _, err := p.AddOurs(nil); err != nil {
			t.Fatalf("ADD again: %v", err)
		}
		if n := len(rows(t, tables(t, node).Ifaces.All())); n != 1 {
			t.Errorf("ADD again: want one row of ifaces, got %d", n)
		}
		if after := traffic(t, node.NS, p.Host.Name); countLines(after) != countLines(before) {
			t.Errorf("ADD again: want as before\n%s, got\n%s", before, after)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := p.TryDelOurs(); err != nil {
					t.Errorf("DEL in parallel: %v", err)
				}
			})
		}
		all.Wait()
		untouched(t, p)
		noRows(t, p)

		if _, err := p.AddOurs(nil); err != nil {
			t.Fatalf("ADD after DEL: %v", err)
		}
		for range 2 {
			if err := p.DelOursBare(); err != nil {
				t.Errorf("DEL without result and namespace: %v", err)
			}
		}
		untouched(t, p)
		noRows(t, p)

		// The veth is gone before: with the namespace, or by a DEL out of order.
		dead := node.Add(t, netns.PodSpec{Name: "dead", Ports: netns.Both(8081, 80), Bandwidth: chainedLimits})
		dead.MustRun(t, "", "ip", "link", "del", "dev", dead.IfName)
		if err := dead.TryDelOurs(); err != nil {
			t.Errorf("DEL after the veth went: %v", err)
		}
		noRows(t, dead)
	})
}

func countLines(s string) int { return strings.Count(s, "\n") }

// X3, L4: a DEL that comes when the next pod has taken port and address does it no harm.
func TestPrivilegedX3L4Late(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		one := oneAddress(node)
		first, err := node.TryAdd(netns.PodSpec{Name: "first", NS: netns.New(t, "first"), Ports: netns.Both(8080, 80), Conf: one, Bandwidth: chainedLimits})
		if err != nil {
			t.Fatal(err)
		}
		if err := first.TryDelBefore(); err != nil { // the other plugin's, which frees the addresses
			t.Fatal(err)
		}
		first.Vanish()
		second := node.Add(t, netns.PodSpec{Name: "second", Ports: netns.Both(8080, 80), Conf: one, Bandwidth: chainedLimits})
		second.Serve(t, 80)
		if first.V4 != second.V4 {
			t.Fatalf("addresses: %s and %s", first.V4, second.V4)
		}
		if err := first.TryDelOurs(); err != nil {
			t.Errorf("late DEL: %v", err)
		}
		each(t, small, func(t *testing.T, proto string, family int) {
			ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(family), 8080), want{server: "second", remote: only(c.Outside().Addr(family))})
		})
		if err := second.Check(); err != nil {
			t.Errorf("CHECK: %v", err)
		}
	})
}

// X3, P9: CHECK sees a filter, a row, a shaper that are missing; not a new name.
func TestPrivilegedX3P9Check(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		// Without its row a pod that says something is not heard.
		c := wireChained(t, netns.Layout{}, chain, "source")
		node := c.Nodes[0]
		p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Bandwidth: chainedLimits})
		set := tables(t, node)
		for _, fault := range []struct {
			what string
			make func()
		}{
			{"filter", func() { node.MustRun(t, "", "tc", "filter", "del", "dev", p.Host.Name, "ingress") }},
			{"shaper", func() { node.MustRun(t, "", "tc", "qdisc", "del", "dev", p.Host.Name, "root") }},
			{"shaper in the pod", func() { p.MustRun(t, "", "tc", "qdisc", "del", "dev", p.IfName, "root") }},
			{"pod's row", func() { must(t, set.Pods.Delete(p.V4)) }},
			{"hostPort's row", func() {
				for _, r := range rows(t, set.Hostports.All()) {
					must(t, set.Hostports.Delete(r.Key()))
				}
			}},
			{"iface's row", func() { must(t, set.Ifaces.Delete(devices(t, node.NS)[p.Host.Name].Index)) }},
		} {
			if err := p.Check(); err != nil {
				t.Errorf("before %s goes: %v", fault.what, err)
			}
			fault.make()
			if err := p.Check(); err == nil {
				t.Errorf("without the %s CHECK finds nothing", fault.what)
			}
			if _, err := p.AddOurs(nil); err != nil {
				t.Fatalf("ADD again: %v", err)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// X3: a veth that was renamed is the pod's all the same, for CHECK, GC, culvertctl and DEL.
func TestPrivilegedX3Renamed(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Bandwidth: chainedLimits})
		p.Serve(t, 80)
		was := p.Host.Name
		node.IP(t, "link set "+was+" down", "link set "+was+" name other0", "link set other0 up")
		p.Host.Name = "other0"
		t.Cleanup(func() { node.IP(t, "link set other0 down", "link set other0 name "+was) })
		if _, err := node.Exec("GC", nil, chainedConf(node)); err != nil { // without a list: only what is dead
			t.Errorf("GC: %v", err)
		}
		if _, err := p.AddOurs(map[string]any{"name": "another"}); netns.Code(err) != 7 {
			t.Errorf("another network's ADD: want error 7, got %v", err)
		}
		if _, err := node.TryAdd(netns.PodSpec{Name: "second", NS: netns.New(t, "second"), Ports: netns.Both(8080, 80)}); netns.Code(err) != 100 {
			t.Errorf("another pod's ADD: want error 100, as this one lives, got %v", err)
		}
		setLimits(t, p, "20M")
		ctl := filepath.Join(node.Bin.Dir, "culvertctl")
		for _, view := range []string{"pods", "hostports", "limits"} {
			if out := node.MustRun(t, "", ctl, "--pin-path", node.PinPath, view); !strings.Contains(out, p.ID) {
				t.Errorf("culvertctl %s: the pod is not listed: %s", view, out)
			}
		}
		if err := p.TryDelOurs(); err != nil {
			t.Errorf("DEL: %v", err)
		}
		untouched(t, p)
		noRows(t, p)
	})
}

// chainedConf is culvert's configuration in a list where it makes no interface.
func chainedConf(n *netns.Node) map[string]any {
	conf := n.Conf()
	delete(conf, "ipam")
	return conf
}

// X3, P10: GC takes off what the list does not name, and leaves the veth; without a list
// it takes what is provably dead.
func TestPrivilegedX3P10GC(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		stale := node.Add(t, netns.PodSpec{Name: "stale", Ports: netns.Both(8080, 80), Bandwidth: chainedLimits})
		valid := node.Add(t, netns.PodSpec{Name: "valid", Ports: netns.Both(8081, 80), Bandwidth: chainedLimits})
		dead := node.Add(t, netns.PodSpec{Name: "dead", Ports: netns.Both(8082, 80)})
		dead.Vanish()
		if err := netns.Poll(func() error {
			if _, still := devices(t, node.NS)[dead.Host.Name]; still {
				return fmt.Errorf("device %s is still there", dead.Host.Name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dead.TryDel(map[string]string{"CNI_NETNS": ""}) }) // addresses
		if _, err := node.Exec("GC", nil, chainedConf(node)); err != nil {
			t.Errorf("GC without a list: %v", err)
		}
		noRows(t, dead)
		if got := names(rows(t, tables(t, node).Ifaces.All())); got != "stale valid" && got != "valid stale" {
			t.Errorf("after GC without a list: %q", got)
		}
		conf := chainedConf(node)
		conf["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": "valid", "ifname": "eth0"}}
		if _, err := node.Exec("GC", nil, conf); err != nil {
			t.Errorf("GC: %v", err)
		}
		untouched(t, stale)
		noRows(t, stale)
		if err := valid.Check(); err != nil {
			t.Errorf("CHECK of the valid one: %v", err)
		}
	})
}

func names(list []maps.Iface) string {
	var out []string
	for _, i := range list {
		out = append(out, i.Container)
	}
	return strings.Join(out, " ")
}
