// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Uplinks are the devices where traffic from outside comes in and leaves.
type Uplinks struct {
	Links []Link
	// Names are those that were asked for; none: the rule found Links.
	Names []string
	// LeftOut would be uplinks but for their type: a tunnel without an Ethernet header.
	LeftOut []Link
	// ByDefault are the numbers of the devices that default routes leave by.
	ByDefault []int
	// Default4 and Default6 say whether the family has a default route of somebody's.
	Default4, Default6 bool
}

// NoSuchUplink says which name of a configuration fits no Ethernet device.
type NoSuchUplink struct{ Name, Why string }

func (e NoSuchUplink) Error() string { return fmt.Sprintf("uplink %q: %s", e.Name, e.Why) }

// Uplinks finds the uplinks: the devices named or, without names, those that the default
// routes of the main table leave by and those that hold a global address; ours says
// which names are culvert's own. Its cost does not grow with the pods but for the walk
// over their routes, whose headers alone are looked at.
func (h *Handle) Uplinks(names []string, ours func(name string) bool) (Uplinks, error) {
	u := Uplinks{Names: names}
	var candidates []int
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		on, err := h.defaultRoutes(family)
		if err != nil {
			return Uplinks{}, err
		}
		if family == unix.AF_INET {
			u.Default4 = len(on) > 0
		} else {
			u.Default6 = len(on) > 0
		}
		candidates = append(candidates, on...)
	}
	if len(names) > 0 {
		links, err := h.named(names)
		u.Links = links
		return u, err
	}
	u.ByDefault = slices.Clone(candidates)
	subnets, err := h.addressed()
	if err != nil {
		return Uplinks{}, err
	}
	candidates = append(candidates, slices.Collect(maps.Keys(subnets))...)
	slices.Sort(candidates)
	for _, index := range slices.Compact(candidates) {
		l, err := h.Link(index)
		switch {
		case errors.Is(err, unix.ENODEV) || err == nil && (ours(l.Name) || l.IsTunnel()):
			continue // gone meanwhile, or a pod's, or what leads to other nodes' pods
		case err != nil:
			return Uplinks{}, err
		case l.Kind == "veth" && !subnets[index] && !slices.Contains(u.ByDefault, index):
			continue // it leads to one address, a pod of the plugin ptp
		}
		if l.Ethernet {
			u.Links = append(u.Links, l)
		} else if l.Index != loIndex {
			u.LeftOut = append(u.LeftOut, l)
		}
	}
	return u, nil
}

const loIndex = 1 // in every namespace

func (h *Handle) named(names []string) ([]Link, error) {
	var links []Link
	for _, name := range names {
		l, err := h.LinkNamed(name)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil, NoSuchUplink{name, "no such device"}
		case err != nil:
			return nil, err
		case !l.Ethernet:
			return nil, NoSuchUplink{name, "not an Ethernet device"}
		case l.IsTunnel():
			return nil, NoSuchUplink{name, "culvert's own tunnel"}
		}
		links = append(links, l)
	}
	return links, nil
}

// defaultRoutes lists the devices that default routes of the main table leave by.
func (h *Handle) defaultRoutes(family int) ([]int, error) {
	msg := &nl.RtMsg{}
	msg.Family, msg.Table = uint8(family), unix.RT_TABLE_MAIN
	on, err := dump(func() ([]int, error) {
		req, err := h.request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, msg)
		if err != nil {
			return nil, err
		}
		var on []int
		err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(m []byte) bool {
			r := nl.DeserializeRtMsg(m)
			if r.Dst_len == 0 && r.Type == unix.RTN_UNICAST && r.Flags&unix.RTM_F_CLONED == 0 {
				on = append(on, outDevices(m[r.Len():])...)
			}
			return true
		})
		return on, err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // no such table, no such family
	}
	if err != nil {
		return nil, fmt.Errorf("list default routes: %w", err)
	}
	return on, nil
}

// outDevices finds the devices in the attributes of a route.
func outDevices(b []byte) []int {
	attrs, err := nl.ParseRouteAttrAsMap(b)
	if err != nil {
		return nil
	}
	var on []int
	if a, ok := attrs[unix.RTA_OIF]; ok {
		on = append(on, int(nl.NativeEndian().Uint32(a.Value)))
	}
	for hops := attrs[unix.RTA_MULTIPATH].Value; len(hops) >= unix.SizeofRtNexthop; {
		hop := nl.DeserializeRtNexthop(hops)
		on = append(on, int(hop.RtNexthop.Ifindex))
		step := (int(hop.RtNexthop.Len) + 3) &^ 3
		if step == 0 || step > len(hops) {
			break
		}
		hops = hops[step:]
	}
	return on
}

// addressed lists the devices that hold a global address, and says whether one is of a
// subnet. Our own hold none, so the list stays short on a node full of pods.
func (h *Handle) addressed() (map[int]bool, error) {
	on, err := dump(func() (map[int]bool, error) {
		req, err := h.request(unix.RTM_GETADDR, unix.NLM_F_DUMP, nl.NewIfAddrmsg(netlink.FAMILY_ALL))
		if err != nil {
			return nil, err
		}
		on := map[int]bool{}
		err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(m []byte) bool {
			if a := nl.DeserializeIfAddrmsg(m); a.Scope == unix.RT_SCOPE_UNIVERSE && a.Index != loIndex {
				whole := map[uint8]uint8{unix.AF_INET: 32, unix.AF_INET6: 128}[a.Family]
				on[int(a.Index)] = on[int(a.Index)] || a.Prefixlen < whole
			}
			return true
		})
		return on, err
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return on, nil
}
