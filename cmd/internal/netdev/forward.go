// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EnableForwarding switches forwarding on for the families asked for. Before IPv6's goes
// on, each device that holds a route learnt by router advertisement and accepts these as
// a host does (accept_ra 1) is told to go on doing so as a router (2): else the kernel
// drops the node's default route at once. Where forwarding is on, nothing is changed.
func (h *Handle) EnableForwarding(v4, v6 bool) error {
	if v4 {
		if _, err := (Sysctl{Path: "net/ipv4/ip_forward", Value: "1"}).Ensure(); err != nil {
			return err
		}
	}
	all := Sysctl{Path: "net/ipv6/conf/all/forwarding", Value: "1"}
	if !v6 {
		return nil
	}
	if now, err := all.Get(); err != nil || now == all.Value {
		return err
	}
	if err := h.keepAdvertisedRoutes(); err != nil {
		return err
	}
	return all.Set()
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
