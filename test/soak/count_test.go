// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"sort"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// counts is how many there are of what: "rows of pods", "qdiscs", ...
type counts map[string]int

// count looks at everything that a pod has a part in. Rows of flows are an LRU's and say
// nothing; those of counters are looked at by their device.
func (s *soak) count() counts {
	c, err := s.tryCount()
	if err != nil {
		s.fail("count: %v", err)
	}
	return c
}

func (s *soak) tryCount() (counts, error) {
	c := counts{}
	if err := s.countRows(c); err != nil {
		return nil, err
	}
	if err := s.countPrograms(c); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(s.node.PinPath, func(path string, _ fs.DirEntry, err error) error {
		if c["pins"]++; filepath.Base(filepath.Dir(path)) == "links" {
			c["links"]++
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{"*.*.*.*", "*:*"} {
		leases, _ := filepath.Glob(filepath.Join(s.node.DataDir, netns.Network, pattern))
		c["leases"] += len(leases)
	}
	return c, s.node.Do(func() error { return countDevices(c) })
}

func (s *soak) countRows(c counts) error {
	set, err := maps.Open(filepath.Join(s.node.PinPath, "v1", "maps"))
	if err != nil {
		return err
	}
	defer set.Close()
	return firstOf(
		rows(c, "pods", set.Pods.All()), rows(c, "ifaces", set.Ifaces.All()),
		rows(c, "hostports", set.Hostports.All()), rows(c, "limits", set.Limits.All()),
		s.counters(set),
	)
}

func rows[T any](c counts, table string, all iter.Seq2[T, error]) error {
	got, err := maps.Collect(all)
	c["rows of "+table] = len(got)
	return err
}

// counters wants no packet dropped, and no row of a device that is gone.
func (s *soak) counters(set *maps.Set) error {
	got, err := maps.Collect(set.Counters.All())
	if err != nil {
		return err
	}
	there := map[int]bool{}
	err = s.node.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			there[l.Attrs().Index] = true
		}
		return err
	})
	for _, r := range got {
		if !there[r.Ifindex] {
			err = fmt.Errorf("counters of a device that is gone: %+v", r)
		} else if r.Packets > 0 {
			s.drop(r)
		}
	}
	return err
}

// countDevices runs in the node.
func countDevices(c counts) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	c["devices"] = len(links)
	for _, l := range links {
		qdiscs, err := netlink.QdiscList(l)
		if err != nil {
			return err
		}
		c["qdiscs"] += len(qdiscs)
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, _ := netlink.FilterList(l, parent) // none where there is no clsact
			c["filters"] += len(filters)
		}
	}
	for family, name := range map[int]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		c["routes of "+name] = len(routes)
		neighbours, err := netlink.NeighList(0, family)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.State&netlink.NUD_PERMANENT != 0 {
				c["neighbours of "+name]++
			}
		}
	}
	return nil
}

// differs names what is not as it was.
func (c counts) differs(first counts) error {
	var all []string
	for what := range c {
		if c[what] != first[what] {
			all = append(all, fmt.Sprintf("%s %d, were %d", what, c[what], first[what]))
		}
	}
	if len(all) == 0 {
		return nil
	}
	sort.Strings(all)
	return fmt.Errorf("not flat: %s", strings.Join(all, "; "))
}

// compare counts until it is as at first: devices of namespaces that are gone take the
// kernel a while.
func (s *soak) compare(f *flatness) {
	s.still.Lock()
	defer s.still.Unlock()
	err := netns.Poll(func() error {
		c, err := s.tryCount()
		if err != nil {
			return err
		}
		return c.differs(f.first)
	})
	if err != nil {
		f.broken = append(f.broken, err)
		s.fail("%v", err)
	}
}

// empty wants nothing left but what the first ADD has loaded.
func (s *soak) empty() {
	err := netns.Poll(func() error {
		c, err := s.tryCount()
		if err != nil {
			return err
		}
		for what, n := range c {
			if strings.HasPrefix(what, "rows of ") && n != 0 || what == "leases" && n != 0 ||
				what == "devices" && n != 2 || what == "filters" && n > 2 {
				return fmt.Errorf("when all pods are gone there are %d %s", n, what)
			}
		}
		return nil
	})
	if err != nil {
		s.fail("%v", err)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
