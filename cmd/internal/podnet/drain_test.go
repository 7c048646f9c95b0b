// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// A range that the configuration has no more is listed until its last pod is gone; which ADD or
// DEL that is, and what it knows, is all the same.
func TestPrivilegedRangesDrained(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		spec.Masquerade, spec.NonMasqueradeOwn = true, true
		var rows []maps.Iface
		// add lists ranges; addrs are what the pod gets after that, "" while it is being made.
		add := func(own, addrs string) error {
			sp := spec
			sp.Container = "c" + own + addrs
			sp.NonMasquerade = prefixes(strings.Fields(own)...)
			row := maps.Iface{Ifindex: 100 + len(rows), Owner: sp.Owner, Generation: uint64(len(rows) + 1)}
			s, err := newSetup(d, sp)
			err = errors.Join(err, d.Datapath.Maps.Ifaces.Put(row), s.listRanges(t.Context()))
			for _, a := range strings.Fields(addrs) {
				row.Addrs = append(row.Addrs, netip.MustParseAddr(a))
			}
			rows = append(rows, row)
			return errors.Join(err, d.Datapath.Maps.Ifaces.Put(row))
		}
		del := func(i int, own string) error {
			d.OwnRanges = prefixes(strings.Fields(own)...)
			ranges, err := d.leaving(rows[i].Owner)
			return errors.Join(err, d.Datapath.Maps.Ifaces.Delete(rows[i].Ifindex), d.releaseNetworks(spec.Network), d.left(rows[i].Owner, ranges))
		}
		for _, step := range []struct {
			after string
			do    func() error
			want  string
		}{
			{"ADD 0", func() error { return add("10.1.0.0/16 fd01::/64", "10.1.0.2 fd01::2") }, "10.1.0.0/16 fd01::/64"},
			{"ADD 1 of another range", func() error { return add("10.2.0.0/16", "10.2.0.2") }, "10.1.0.0/16 10.2.0.0/16 fd01::/64"},
			{"ADD 2 of the old one", func() error { return add("10.1.0.0/16 fd01::/64", "10.1.0.3") }, "10.1.0.0/16 10.2.0.0/16 fd01::/64"},
			{"DEL 0 with an old configuration", func() error { return del(0, "10.1.0.0/16 fd01::/64") }, "10.1.0.0/16 10.2.0.0/16 fd01::/64"},
			{"ADD 3, where one range is empty", func() error { return add("10.2.0.0/16", "10.2.0.3") }, "10.1.0.0/16 10.2.0.0/16"},
			{"DEL 2, the last of the old range", func() error { return del(2, "10.2.0.0/16") }, "10.2.0.0/16"},
			{"ADD 4 of a part of the range", func() error { return add("10.2.0.0/24", "10.2.0.4") }, "10.2.0.0/24"},
			{"ADD 5, which is being made", func() error { return add("10.5.0.0/16", "") }, "10.2.0.0/24 10.5.0.0/16"},
			{"DEL 1", func() error { return del(1, "10.7.0.0/16") }, "10.2.0.0/24 10.5.0.0/16"},
			{"DEL 3", func() error { return del(3, "10.7.0.0/16") }, "10.2.0.0/24 10.5.0.0/16"},
			{"DEL 4, while one is being made", func() error { return del(4, "10.7.0.0/16") }, "10.2.0.0/24 10.5.0.0/16"},
			{"DEL of the last", func() error { return del(5, "") }, ""},
		} {
			err := step.do()
			got := strings.ReplaceAll(describeCidrs(t, d.Datapath.Maps.Nonmasq), ":"+spec.Network, "")
			if err != nil || got != step.want {
				t.Errorf("after %s: %q, %v, want %q", step.after, got, err, step.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
