// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// X1: foreign clsact filters and tcx programs, ahead of ours and behind, on the uplink,
// on lo and on a pod's veth, keep seeing what they saw and are never removed; of ours
// there is exactly one a hook, however often something runs.
func TestPrivilegedX1Foreign(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "clsact", "tcx"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := &beside{cluster: wire(t, netns.Layout{}), mode: map[string]any{"attach": mode}}
			b.probe(t)
			if mode == "tcx" && !b.tcx {
				t.Skip("kernel without tcx")
			}
			b.run(t)
		})
	}
}

// beside is a node with foreign programs; behind are those that see only what ours pass
// on.
type beside struct {
	*cluster
	mode map[string]any
	tcx  bool // the kernel has it

	foreign []*foreign
	at      map[*foreign]hook
}

// probe finds out what the kernel has, by a first pod that leaves the programs loaded.
func (b *beside) probe(t *testing.T) {
	t.Helper()
	node := b.Nodes[0]
	node.Add(t, netns.PodSpec{Name: "probe"}).Del(t)
	config, err := tables(t, node).Config.Get()
	if err != nil {
		t.Fatal(err)
	}
	b.tcx, b.at = config.Features&maps.FeatureTCX != 0, map[*foreign]hook{}
}

// surround puts a foreign program of each kind around ours.
func (b *beside) surround(t *testing.T, dev string) {
	t.Helper()
	for _, egress := range []bool{false, true} {
		h := hook{b.Nodes[0], dev, egress}
		all := []*foreign{h.clsact(t, "first filter", 1), h.clsact(t, "last filter", 60000)}
		if b.tcx {
			all = append(all, h.link(t, "tcx head", link.Head()), h.link(t, "tcx tail", link.Tail()))
		}
		for _, f := range all {
			b.at[f] = h
		}
		b.foreign = append(b.foreign, all...)
	}
}

func (b *beside) run(t *testing.T) {
	node := b.Nodes[0]
	b.surround(t, "up0") // some are there before us
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: b.mode})
	b.surround(t, a.Host.Name)
	b.surround(t, "lo")
	node.Serve(t, 81)
	b.Outside().Serve(t, 80)
	b.sees(t, a, "after ADD")
	others := 3
	if netns.Emulated() {
		others = 1
	}
	for i := range others {
		p := node.Add(t, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Ports: netns.Both(9000+i, 80), Conf: b.mode})
		if err := a.Check(); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		p.Del(t)
		conf := node.Conf()
		conf["attach"] = b.mode["attach"]
		conf["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": "a", "ifname": "eth0"}}
		if _, err := node.Exec("GC", nil, conf); err != nil {
			t.Errorf("GC: %v", err)
		}
	}
	b.sees(t, a, "after further runs")
	b.once(t, a)
	a.Del(t)
	for f, h := range b.at {
		if h.dev != a.Host.Name && !slices.Contains(h.programs(t), f.id(t)) {
			t.Errorf("%s: gone after DEL", f.name)
		}
	}
}

// once wants exactly one of ours on each hook.
func (b *beside) once(t *testing.T, a *netns.Pod) {
	t.Helper()
	node := b.Nodes[0]
	for program, h := range map[string]hook{
		"from_uplink": {node, "up0", false}, "to_uplink": {node, "up0", true}, "from_host": {node, "lo", true},
		"from_pod": {node, a.Host.Name, false}, "to_pod": {node, a.Host.Name, true},
	} {
		if own := count(h.programs(t), pinned(t, node, program)); own != 1 {
			t.Errorf("%s: want %s there once, got it %d times", h, program, own)
		}
	}
}

// sees makes traffic of every kind, of which each foreign program has to see something,
// and wants all of them in their places.
func (b *beside) sees(t *testing.T, a *netns.Pod, when string) {
	t.Helper()
	node, outside := b.Nodes[0], b.Outside()
	before := map[*foreign]uint64{}
	there := map[hook][]ebpf.ProgramID{}
	for _, f := range b.foreign {
		before[f] = f.count(t)
		there[b.at[f]] = b.at[f].programs(t)
	}
	for _, proto := range small {
		for _, v := range families {
			up := node.Uplinks[0].Addr(v)
			ask(t, outside.NS, call(proto, up, 8080), want{server: "a"})
			ask(t, outside.NS, call(proto, a.Addr(v), 80), want{server: "a"})
			ask(t, outside.NS, call(proto, up, 81), want{server: node.Name})
			ask(t, a.NS, call(proto, outside.Addr(v), 80), want{server: outside.Name})
			ask(t, node.NS, call(proto, up, 8080), want{server: "a"})
			ask(t, node.NS, call(proto, loopback[v], 8080), want{server: "a"})
			ask(t, node.NS, call(proto, up, 81), want{server: node.Name})
			ask(t, node.NS, call(proto, a.Addr(v), 80), want{server: "a"})
		}
	}
	for _, f := range b.foreign {
		if !slices.Contains(there[b.at[f]], f.id(t)) {
			t.Errorf("%s: %s is gone", when, f.name)
		} else if f.count(t) == before[f] {
			t.Errorf("%s: %s saw nothing", when, f.name)
		}
	}
}
