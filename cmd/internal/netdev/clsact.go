// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Our filter's place, the same on every device, so that it is found and replaced
// without looking at anybody else's.
const (
	filterHandle   = 1
	filterPriority = 0x4355 // "CU"
)

// AttachClsact implements loader.Netlink.
func (h *Handle) AttachClsact(ifindex int, egress bool, progFD int, name string) error {
	if err := h.addClsact(ifindex); err != nil {
		return err
	}
	filter := ourFilter(ifindex, egress)
	filter.Fd, filter.Name, filter.DirectAction = progFD, name, true
	if err := h.nl.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach %s to device %d: %w", name, ifindex, gone(err))
	}
	return nil
}

// DetachClsact implements loader.Netlink.
func (h *Handle) DetachClsact(ifindex int, egress bool) error {
	on, err := h.HasClsact(ifindex, egress)
	if err != nil || !on {
		return err
	}
	if err := h.nl.FilterDel(ourFilter(ifindex, egress)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach filter from device %d: %w", ifindex, gone(err))
	}
	return nil
}

// HasClsact implements loader.Netlink.
func (h *Handle) HasClsact(ifindex int, egress bool) (bool, error) {
	want := ourFilter(ifindex, egress)
	filters, err := dump(func() ([]netlink.Filter, error) {
		return h.nl.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, want.Parent)
	})
	switch {
	case errors.Is(err, unix.EINVAL): // no such qdisc
		return false, nil
	case err != nil:
		return false, fmt.Errorf("list filters of device %d: %w", ifindex, gone(err))
	}
	for _, f := range filters {
		a := f.Attrs()
		if f.Type() == want.Type() && a.Handle == want.Handle && a.Priority == want.Priority {
			return true, nil
		}
	}
	return false, nil
}

func (h *Handle) addClsact(ifindex int) error {
	if h.clsact[ifindex] {
		return nil
	}
	err := h.nl.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to device %d: %w", ifindex, gone(err))
	}
	h.clsact[ifindex] = true
	return nil
}

func ourFilter(ifindex int, egress bool) *netlink.BpfFilter {
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if egress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: ifindex,
		Parent:    parent,
		Handle:    filterHandle,
		Priority:  filterPriority,
		Protocol:  unix.ETH_P_ALL,
	}}
}
