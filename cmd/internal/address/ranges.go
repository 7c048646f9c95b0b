// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/maps"
)

// ranges are all that a configuration has.
type ranges struct {
	sets       []Set // of pods that name no pool
	pools      []poolRanges
	namespaces map[string][]string // by name, in small letters: names of pools
	never      spans
}

type poolRanges struct {
	name string // in small letters
	sets []Set
}

// parseRanges reads and checks all of them, also those that this pod gets nothing from.
func parseRanges(top, ipam netconf.Object) (*ranges, error) {
	all := &ranges{}
	reserved, err := parseReserved(ipam)
	if err != nil {
		return nil, err
	}
	if all.sets, err = parseSets(top, ipam); err != nil {
		return nil, err
	}
	if err := all.parsePools(ipam); err != nil {
		return nil, err
	}
	// An agent that has none as yet, or no more, writes an empty list.
	if len(all.sets) == 0 && !ipam.Has("pools") && !ipam.Has("ranges") {
		return nil, netconf.Bad("ipam.ranges", "(none)", "no range of addresses: give ipam.subnet, ipam.ranges or runtimeConfig.ipRanges")
	}
	return all, all.seal(reserved)
}

// seal takes out of every range what nobody gives, and then what is reserved.
func (all *ranges) seal(reserved []span) error {
	groups := append([]poolRanges{{"", all.sets}}, all.pools...)
	var own []span
	for _, g := range groups {
		own = append(own, ownOf(g.sets)...)
	}
	never := merge(own)
	for _, g := range groups {
		err := checkSets(g.sets)
		if err == nil {
			err = checkAnything(g.sets, never)
		}
		if err != nil {
			return netconf.Bad(g.key(), describe(g.sets), err.Error())
		}
	}
	all.never = merge(append(own, reserved...))
	for _, g := range groups {
		seal(g.sets, all.never)
	}
	return nil
}

// key names the ranges of a pool; those of no pool have no name.
func (p poolRanges) key() string {
	if p.name == "" {
		return "ipam.ranges"
	}
	return "ipam.pools." + p.name + ".ranges"
}

// parseSets reads the ranges of pods that name no pool, in the order in which their addresses
// are given: those of the runtime, the one that the section itself is, and its list.
func parseSets(top, ipam netconf.Object) ([]Set, error) {
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return nil, err
	}
	sets, err := decodeSets(runtime, "ipRanges")
	if err != nil {
		return nil, err
	}
	if ipam.Has("subnet") {
		r, err := parseRange(ipam)
		if err != nil {
			return nil, err
		}
		sets = append(sets, Set{Ranges: []Range{r}})
	}
	more, err := decodeSets(ipam, "ranges")
	if err != nil {
		return nil, err
	}
	if sets = append(sets, more...); len(sets) > maps.MaxOwnerAddrs {
		return nil, netconf.Bad("ipam.ranges", fmt.Sprintf("%d sets", len(sets)), fmt.Sprintf("a pod gets at most %d addresses", maps.MaxOwnerAddrs))
	}
	return sets, nil
}

// parseReserved reads addresses, and ranges of them, that are never given.
func parseReserved(ipam netconf.Object) (list []span, err error) {
	err = ipam.List("reserved", func(path string, raw json.RawMessage) error {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return netconf.Bad(path, netconf.Show(raw), "not a string")
		}
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			list = append(list, span{a.Unmap(), a.Unmap()})
			return nil
		}
		p, err := parsePrefix(s)
		if err != nil {
			return netconf.Bad(path, netconf.Show(raw), "neither an address nor a range of them, as 10.0.0.0/8")
		}
		if p.Masked() != p {
			return netconf.Bad(path, netconf.Show(raw), "has host bits, the range is "+p.Masked().String())
		}
		list = append(list, spanOf(p))
		return nil
	})
	return list, err
}

func describe(sets []Set) string {
	var texts []string
	for _, s := range sets {
		texts = append(texts, "["+s.String()+"]")
	}
	return strings.Join(texts, " ")
}

// checkVersion refuses what the results of CNI 0.1 and 0.2 cannot say.
func (c *Conf) checkVersion() error {
	if lists, err := cniversion.GreaterThanOrEqualTo(c.CNIVersion, "0.3.0"); err != nil || lists {
		return nil
	}
	families := map[int]bool{}
	for _, s := range c.Sets {
		if bits := s.First().BitLen(); families[bits] {
			return netconf.Bad("ipam.ranges", describe(c.Sets), "CNI "+c.CNIVersion+" knows one address a family")
		}
		families[s.First().BitLen()] = true
	}
	return nil
}

// decodeSets reads a list of lists of ranges. A flat list, as containerd's library makes it, is
// a set for each family.
func decodeSets(from netconf.Object, key string) (sets []Set, err error) {
	flat := map[int]int{} // index of the set, by family
	err = from.List(key, func(path string, raw json.RawMessage) error {
		var list []json.RawMessage
		if isNull(raw) {
			return netconf.Bad(path, netconf.Show(raw), "not a range or a list of ranges")
		}
		if json.Unmarshal(raw, &list) != nil {
			r, err := decodeRange(path, raw)
			if err != nil {
				return err
			}
			at, known := flat[r.First.BitLen()]
			if !known {
				at = len(sets)
				flat[r.First.BitLen()] = at
				sets = append(sets, Set{})
			}
			sets[at].Ranges = append(sets[at].Ranges, r)
			return nil
		}
		var set Set
		for j, raw := range list {
			r, err := decodeRange(fmt.Sprintf("%s[%d]", path, j), raw)
			if err != nil {
				return err
			}
			set.Ranges = append(set.Ranges, r)
		}
		if len(set.Ranges) == 0 {
			return netconf.Bad(path, netconf.Show(raw), "a set without a range")
		}
		sets = append(sets, set)
		return nil
	})
	return sets, err
}

func decodeRange(path string, raw json.RawMessage) (Range, error) {
	f, err := netconf.Decode(path, raw)
	if err != nil {
		return Range{}, err
	}
	return parseRange(f)
}

func parseRange(f netconf.Object) (Range, error) {
	s, err := textOf(f, "subnet")
	if err != nil {
		return Range{}, err
	}
	subnet, err := parsePrefix(s)
	if err != nil {
		return Range{}, bad(f, "subnet", "not a range of addresses, as 10.0.0.0/8")
	}
	first, err1 := addrOf(f, "rangeStart")
	last, err2 := addrOf(f, "rangeEnd")
	gateway, err3 := addrOf(f, "gateway")
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return Range{}, err
		}
	}
	r, err := newRange(subnet, first, last, gateway)
	var wrong rangeError
	if errors.As(err, &wrong) {
		return r, bad(f, wrong.key, wrong.why)
	}
	return r, err
}

// parsePrefix takes a mapped range for the one of IPv4 that it is.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if a := p.Addr(); err == nil && a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p, err
}
