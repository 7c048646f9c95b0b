// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	stdmaps "maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// rangeConf is the node's network with a range of each family, as an edited conflist has it.
func rangeConf(v4, v6 netip.Prefix) map[string]any {
	return map[string]any{"ipMasq": true, "ipam": map[string]any{
		"type": "culvert-ipam", "ranges": []list{{{"subnet": v4.String()}}, {{"subnet": v6.String()}}},
	}}
}

// The node's range is another one while it has pods. Those keep their addresses and their
// connections, CHECK finds nothing wrong, and nobody sees another address than a pod's own;
// new pods get the new range; the old one goes from the list with its last pod, whose leases go
// as any pod's.
func TestPrivilegedIPAMRangeChanges(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	new4, new6 := netip.MustParsePrefix("10.90.0.0/24"), netip.MustParsePrefix("fd00:90::/64")
	outside.IP(t, fmt.Sprintf("route add %s via %s", new4, node.Uplinks[0].V4), fmt.Sprintf("route add %s via %s", new6, node.Uplinks[0].V6))
	oldConf, newConf := rangeConf(node.PodRange(4), node.PodRange(6)), rangeConf(new4, new6)
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: oldConf, Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: oldConf})
	tr := newOngoing()
	for _, ns := range []*netns.NS{a.NS, b.NS, outside.NS} {
		echoTCP(t, ns, 7)
	}
	for _, v := range families {
		tr.stream(t, way{"a to b", a.NS, netip.AddrPortFrom(b.Addr(v), 7)})
		tr.stream(t, way{"outside to b", outside.NS, netip.AddrPortFrom(b.Addr(v), 7)})
		tr.stream(t, way{"b to outside", b.NS, netip.AddrPortFrom(outside.Addr(v), 7)})
	}

	n, _ := serve(t, node, netns.PodSpec{Name: "new", Conf: newConf})
	if !new4.Contains(n.V4) || !new6.Contains(n.V6) {
		t.Errorf("the new pod has %s and %s", n.V4, n.V6)
	}
	both := []string{"10.244.0.0/24", "10.90.0.0/24", "fd00:244::/64", "fd00:90::/64"}
	if got := ranges(t, tables(t, node).Nonmasq); !slices.Equal(got, both) {
		t.Errorf("not masqueraded: %v, want %v", got, both)
	}
	for _, p := range []*netns.Pod{a, b} {
		if _, err := node.Exec("CHECK", podEnv(p), nowConf(p, newConf)); err != nil {
			t.Errorf("CHECK %s: %v", p.Name, err)
		}
	}
	each(t, small, func(t *testing.T, proto string, v int) {
		for _, pair := range [][2]*netns.Pod{{a, n}, {n, a}} {
			from, to := pair[0], pair[1]
			ask(t, from.NS, call(proto, to.Addr(v), 80), want{server: to.Name, remote: only(from.Addr(v))})
			ask(t, outside.NS, call(proto, to.Addr(v), 80), want{server: to.Name, remote: only(outside.Addr(v))})
		}
		ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "a"})
	})
	if resets, _ := tr.end(t); resets > 0 || tr.questions.Load() == 0 {
		t.Errorf("%d connections of old pods broke, %d questions", resets, tr.questions.Load())
	}

	a.Del(t) // with the configuration of its ADD, as some runtimes keep it
	if got := ranges(t, tables(t, node).Nonmasq); !slices.Equal(got, both) {
		t.Errorf("with one old pod left: %v, want %v", got, both)
	}
	if _, err := node.Exec("DEL", podEnv(b), nowConf(b, newConf)); err != nil {
		t.Errorf("DEL of the last old pod: %v", err)
	}
	if got := ranges(t, tables(t, node).Nonmasq); !slices.Equal(got, []string{"10.90.0.0/24", "fd00:90::/64"}) {
		t.Errorf("without old pods: %v", got)
	}
	if held := leasesOf(t, node); len(held) != 2 || held[n.V4.String()] != "new" {
		t.Errorf("held: %v", held)
	}
}

func podEnv(p *netns.Pod) map[string]string {
	return map[string]string{"CNI_CONTAINERID": p.ID, "CNI_NETNS": p.Path(), "CNI_IFNAME": p.IfName}
}

// nowConf is what a runtime calls a later verb with: the network as it is now, and what ADD
// said then.
func nowConf(p *netns.Pod, now map[string]any) map[string]any {
	conf := p.Node.Conf()
	stdmaps.Copy(conf, now)
	conf["prevResult"] = p.Result
	return conf
}
