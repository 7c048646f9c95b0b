// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The settings that EnableForwarding writes.
var (
	forwarding4 = Sysctl{Path: "net/ipv4/ip_forward", Value: "1"}
	forwarding6 = Sysctl{Path: "net/ipv6/conf/all/forwarding", Value: "1"}
)

// Forwards says whether forwarding is on for the families asked for.
func (h *Handle) Forwards(v4, v6 bool) (bool, error) {
	for _, s := range []struct {
		wanted bool
		Sysctl
	}{{v4, forwarding4}, {v6, forwarding6}} {
		if !s.wanted {
			continue
		}
		if now, err := s.Get(); err != nil || now != s.Value {
			return false, err
		}
	}
	return true, nil
}

// EnableForwarding switches forwarding on for the families asked for. Before IPv6's goes
// on, each device that holds a route learnt by router advertisement and accepts these as
// a host does (accept_ra 1) is told to go on doing so as a router (2): else the kernel
// drops the node's default route at once. Where forwarding is on, nothing is changed.
//
// One caller at a time: of two who write ip_forward at once, the one who does not get rtnl
// takes its value back and starts again, and what is left may be a 1 that no device follows.
func (h *Handle) EnableForwarding(v4, v6 bool) error {
	if v4 {
		if _, err := forwarding4.Ensure(); err != nil {
			return err
		}
	}
	if on, err := h.Forwards(false, v6); on || err != nil {
		return err
	}
	if err := h.keepAdvertisedRoutes(); err != nil {
		return err
	}
	return forwarding6.Set()
}

func (h *Handle) keepAdvertisedRoutes() error {
	filter := &netlink.Route{Protocol: unix.RTPROT_RA, Table: unix.RT_TABLE_UNSPEC}
	routes, err := dump(func() ([]netlink.Route, error) {
		return h.nl.RouteListFiltered(netlink.FAMILY_V6, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes of router advertisements: %w", err)
	}
	for _, r := range routes {
		l, err := h.Link(r.LinkIndex)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return err
		}
		accept := Sysctl{Path: "net/ipv6/conf/" + l.Name + "/accept_ra", Value: "2"}
		now, err := accept.Get()
		if err == nil && now == "1" {
			err = accept.Set()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
