// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	stdmaps "maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// annotations are a pod's as containerd hands them on.
func annotations(pools string) map[string]any {
	return map[string]any{"io.kubernetes.cri.pod-annotations": map[string]any{"culvert.dev/ippools": pools}}
}

// poolConf is the node's network as an agent writes it: its own range, which gives two
// addresses of each family, and two pools.
func poolConf(n *netns.Node) map[string]any {
	own := func(v int) list {
		first := n.PodRange(v).Addr().Next().Next()
		return list{{"subnet": n.PodRange(v).String(), "rangeStart": first.String(), "rangeEnd": first.Next().Next().Next().String()}}
	}
	return map[string]any{"ipMasq": true, "ipam": map[string]any{
		"type":   "culvert-ipam",
		"ranges": []list{own(4), own(6)}, "reserved": []string{n.PodRange(4).Addr().Next().Next().Next().String(), "fd00:77::/65", "10.77.0.2/31"},
		"pools": map[string]any{
			"blue": map[string]any{"ranges": []list{{{"subnet": "10.77.0.0/24"}}, {{"subnet": "fd00:77::/64"}}}},
			"red":  map[string]any{"ranges": []list{{{"subnet": "10.78.0.0/24"}}}},
			"away": map[string]any{"ranges": []list{}},
		},
		"namespacePools": map[string]any{"shop": []string{"red", "blue"}, "lost": []string{"away"}},
	}}
}

// ranges lists the ranges of a table, in order.
func ranges(t *testing.T, table *maps.Cidrs) []string {
	t.Helper()
	var list []string
	for _, r := range rows(t, table.All()) {
		list = append(list, r.Prefix.String())
	}
	slices.Sort(list)
	return list
}

// Pods of pools, chosen by the pod and by its namespace, beside pods of the network's own range:
// they reach each other with their own addresses, in every verb a pod of a pool is one as any
// other, and what is reserved nobody gets.
func TestPrivilegedIPAMPools(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	conf := poolConf(node)
	with := func(pools string) map[string]any {
		all := stdmaps.Clone(conf)
		all["runtimeConfig"] = annotations(pools)
		return all
	}
	shop := map[string]string{"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=x"}
	add := func(name string, conf map[string]any, env map[string]string) *netns.Pod {
		p, err := node.TryAddEnv(netns.PodSpec{Name: name, NS: netns.New(t, name), Conf: conf}, env)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Del(t) })
		p.Serve(t, 80)
		return p
	}
	own, blue := add("own", conf, nil), add("blue", with(`["blue"]`), shop)
	mixed := add("mixed", conf, shop)
	for _, tt := range []struct {
		pod    *netns.Pod
		v4, v6 string
	}{
		{own, node.PodRange(4).Addr().Next().Next().String(), node.PodRange(6).Addr().Next().Next().String()},
		{blue, "10.77.0.4", "fd00:77:0:0:8000::"},
		{mixed, "10.78.0.2", "fd00:77:0:0:8000::1"},
	} {
		if tt.pod.V4 != netip.MustParseAddr(tt.v4) || tt.pod.V6 != netip.MustParseAddr(tt.v6) {
			t.Errorf("%s has %s %s, want %s %s", tt.pod.Name, tt.pod.V4, tt.pod.V6, tt.v4, tt.v6)
		}
		if err := tt.pod.Check(); err != nil {
			t.Errorf("CHECK %s: %v", tt.pod.Name, err)
		}
	}
	each(t, small, func(t *testing.T, proto string, v int) {
		ask(t, own.NS, call(proto, blue.Addr(v), 80), want{server: "blue", remote: []netip.Addr{own.Addr(v)}})
		ask(t, blue.NS, call(proto, mixed.Addr(v), 80), want{server: "mixed", remote: []netip.Addr{blue.Addr(v)}})
	})
	if got, want := ranges(t, tables(t, node).Nonmasq), []string{"10.244.0.0/24", "10.77.0.0/24", "10.78.0.0/24", "fd00:244::/64", "fd00:77::/64"}; !slices.Equal(got, want) {
		t.Errorf("not masqueraded: %v, want %v", got, want)
	}
	for what, pods := range map[string]netns.PodSpec{
		`"away"`: {Name: "x", Conf: with("blue,away")},
		`"none"`: {Name: "x", Conf: with("none")},
	} {
		pods.NS = netns.New(t, "x")
		if _, err := node.TryAdd(pods); netns.Code(err) != 11 || !strings.Contains(err.Error(), what) {
			t.Errorf("ADD of pool %s: %v", what, err)
		}
	}
}

// A pod of a pool that is asked for again keeps what it has, GC and DEL find it without the
// pool, and STATUS is about the network's own ranges.
func TestPrivilegedIPAMPoolVerbs(t *testing.T) {
	t.Parallel()
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	conf := ipamConf(node, "culvert-ipam", "1.1.0", map[string]any{
		"subnet": "10.3.0.0/30",
		"pools":  map[string]any{"blue": map[string]any{"ranges": []list{{{"subnet": "10.4.0.0/24"}}}}},
	}, map[string]any{"runtimeConfig": annotations("blue")})
	plain := ipamConf(node, "culvert-ipam", "1.1.0", map[string]any{"subnet": "10.3.0.0/30"}, nil)
	if got, err := adds(node, conf, "a", "b", "a", "c"); err != nil || got != "10.4.0.2/24 10.4.0.3/24 10.4.0.2/24 10.4.0.4/24" {
		t.Errorf("ADD: %s, %v", got, err)
	}
	if _, err := node.Exec("CHECK", ipamEnv("a"), plain); err != nil {
		t.Errorf("CHECK without the pool: %v", err)
	}
	if _, err := node.Exec("STATUS", nil, conf); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	if _, err := node.Exec("DEL", ipamEnv("a"), plain); err != nil {
		t.Errorf("DEL without the pool: %v", err)
	}
	plain["cni.dev/valid-attachments"] = list{{"containerID": "b", "ifname": "eth0"}}
	if _, err := node.Exec("GC", nil, plain); err != nil {
		t.Errorf("GC without the pool: %v", err)
	}
	if held := leasesOf(t, node); len(held) != 1 || held["10.4.0.3"] != "b" {
		t.Errorf("held: %v", held)
	}
	if got, err := adds(node, plain, "own"); err != nil || got != "10.3.0.2/30" {
		t.Errorf("ADD of the last: %s, %v", got, err)
	}
	if _, err := node.Exec("STATUS", nil, conf); netns.Code(err) != 50 {
		t.Errorf("STATUS of full ranges beside a pool: %v", err)
	}
	plain["ipam"].(map[string]any)["reserved"] = []string{"10.3.0.0/16"}
	if _, err := node.Exec("STATUS", nil, plain); netns.Code(err) != 50 || !strings.Contains(err.Error(), "all are reserved") {
		t.Errorf("STATUS of reserved ranges: %v", err)
	}
	if _, err := adds(node, plain, "more"); netns.Code(err) != 104 || !strings.Contains(err.Error(), "all are reserved") {
		t.Errorf("ADD to reserved ranges: %v", err)
	}
}
