// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// describeCidrs gives "10.0.0.0/8:a,b ...".
func describeCidrs(t *testing.T, table *maps.Cidrs) string {
	t.Helper()
	rows, err := maps.Collect(table.All())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b maps.Cidr) int { return a.Prefix.Compare(b.Prefix) })
	var parts []string
	for _, r := range rows {
		parts = append(parts, fmt.Sprintf("%s:%s", r.Prefix, strings.Join(r.Networks, ",")))
	}
	return strings.Join(parts, " ")
}

// lockFree says, by an error, that f waits for the lock of the pins.
func lockFree(d *Deps, f func()) error {
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return err
	}
	// f may have to stay on its thread: the lock is let go from another.
	timer := time.AfterFunc(2*time.Second, sync.OnceFunc(unlock))
	f()
	if !timer.Stop() {
		return errors.New("it waits for the lock")
	}
	unlock()
	return nil
}

// F1, H10: the lists follow the configuration of each ADD, are united over the networks,
// and go with a network's last attachment.
func TestPrivilegedRanges(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		ifindex := 100
		owned := map[string][]int{}
		add := func(network string, masquerade bool, nonmasq, excluded []netip.Prefix) error {
			ifindex++
			sp := spec
			sp.Network, sp.Masquerade, sp.NonMasquerade, sp.Exclude = network, masquerade, nonmasq, excluded
			owned[network] = append(owned[network], ifindex)
			row := maps.Iface{Ifindex: ifindex, Owner: sp.Owner, Generation: uint64(ifindex)}
			s, err := newSetup(d, sp)
			return errors.Join(err, d.Datapath.Maps.Ifaces.Put(row), s.listRanges(t.Context()))
		}
		del := func(network string) error {
			last := owned[network][0]
			owned[network] = owned[network][1:]
			return errors.Join(d.Datapath.Maps.Ifaces.Delete(last), d.releaseNetworks(network))
		}
		want := func(after, nonmasq, excluded string) {
			t.Helper()
			if n, e := describeCidrs(t, d.Datapath.Maps.Nonmasq), describeCidrs(t, d.Datapath.Maps.Excluded); n != nonmasq || e != excluded {
				t.Errorf("after %s: nonmasq %q, want %q; excluded %q, want %q", after, n, nonmasq, e, excluded)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(add("a", true, prefixes("10.0.0.0/8", "fd00::/8"), prefixes("10.96.0.0/12")))
		want("ADD a", "10.0.0.0/8:a fd00::/8:a", "10.96.0.0/12:a")
		must(add("b", true, prefixes("10.0.0.0/8", "10.1.0.0/16"), nil))
		want("ADD b", "10.0.0.0/8:a,b 10.1.0.0/16:b fd00::/8:a", "10.96.0.0/12:a")
		must(add("c", false, prefixes("192.0.2.0/24"), prefixes("10.96.0.0/12")))
		want("ADD c without ipMasq", "10.0.0.0/8:a,b 10.1.0.0/16:b fd00::/8:a", "10.96.0.0/12:a,c")
		must(lockFree(d, func() { must(add("a", true, prefixes("10.0.0.0/8", "fd00::/8"), prefixes("10.96.0.0/12"))) }))
		must(add("a", true, prefixes("10.1.0.0/16"), nil))
		want("ADD a with other lists", "10.0.0.0/8:b 10.1.0.0/16:a,b", "10.96.0.0/12:c")
		must(add("a", false, nil, nil))
		want("ADD a without ipMasq", "10.0.0.0/8:b 10.1.0.0/16:a,b", "10.96.0.0/12:c")
		must(lockFree(d, func() { must(errors.Join(del("a"), del("a"), del("a"))) }))
		want("DEL of a but the last", "10.0.0.0/8:b 10.1.0.0/16:a,b", "10.96.0.0/12:c")
		must(del("a"))
		want("DEL of the last a", "10.0.0.0/8:b 10.1.0.0/16:b", "10.96.0.0/12:c")
		must(lockFree(d, func() { must(d.releaseNetworks("a")) }))
		owned["b"] = nil
		must(errors.Join(d.Datapath.Maps.Ifaces.Delete(103), d.Datapath.Maps.Ifaces.Delete(102)))
		if _, err := GC(d, "other", nil); err != nil {
			t.Error(err)
		}
		want("GC", "", "")
		must(add("d", true, prefixes("10.0.0.0/8"), prefixes("10.96.0.0/12")))
		must(add("e", true, prefixes("10.0.0.0/8"), prefixes("fd00:96::/108")))
		must(d.Datapath.Maps.Ifaces.Delete(ifindex))
		must(d.dropNetworks([]string{"d", "e"}))
		want("an ADD of d that came while d and e were taken off", "10.0.0.0/8:d", "10.96.0.0/12:d")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A range that too many networks name refuses the next one by its name.
func TestPrivilegedRangesFull(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		spec.Exclude = prefixes("10.0.0.0/8")
		err := d.Datapath.Maps.Excluded.Put(maps.Cidr{Prefix: spec.Exclude[0], Networks: strings.Split("abcdefgh", "")})
		if err != nil {
			return err
		}
		s, err := newSetup(d, spec)
		if err != nil {
			return err
		}
		if err := s.listRanges(t.Context()); err == nil || !strings.Contains(err.Error(), "excluded 10.0.0.0/8") {
			t.Errorf("error %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ADDs and DELs side by side: while an attachment lives, its network's ranges are there.
func TestPrivilegedRangesInParallel(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	d, spec := (*Deps)(nil), Spec{}
	if err := node.Do(func() error { d, spec = newDeps(t, node, pod); return nil }); err != nil {
		t.Fatal(err)
	}
	spec.Exclude = prefixes("10.96.0.0/12", "fd00:96::/108")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 300 {
				row := maps.Iface{Ifindex: 100 + i, Owner: spec.Owner, Generation: uint64(i + 1)}
				s, err := newSetup(d, spec)
				if err == nil {
					err = errors.Join(d.Datapath.Maps.Ifaces.Put(row), s.listRanges(t.Context()))
				}
				if err == nil {
					// A DEL that looked before we came may take them off for a moment.
					err = netns.Poll(func() error { return (&check{Deps: d, Spec: spec}).ranges() })
				}
				err = errors.Join(err, d.Datapath.Maps.Ifaces.Delete(row.Ifindex), d.releaseNetworks(spec.Network))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if left := describeCidrs(t, d.Datapath.Maps.Excluded); left != "" {
		t.Errorf("left: %s", left)
	}
}

func TestToCidrs(t *testing.T) {
	got := toCidrs(prefixes("10.0.0.0/8", "::ffff:0:0/96", "0.0.0.0/0", "fd00::/8", "::/0", "10.0.0.0/8"))
	if !slices.Equal(got, prefixes("0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8")) {
		t.Errorf("got %v", got)
	}
}
