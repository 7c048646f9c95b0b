// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/loader"
)

// Our filter's place, the same on every device, so that it is found and replaced
// without looking at anybody else's.
const (
	filterHandle   = 1
	filterPriority = 0x4355 // "CU"
	filterPrefix   = "culvert_"
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
	err = h.nl.FilterDel(ourFilter(ifindex, egress))
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // somebody was faster: no filter, no qdisc
		return fmt.Errorf("detach filter from device %d: %w", ifindex, gone(err))
	}
	return nil
}

// HasClsact implements loader.Netlink.
func (h *Handle) HasClsact(ifindex int, egress bool) (bool, error) {
	f, err := h.ourFilterAt(ifindex, egress)
	return f != nil, err
}

// filters lists what hangs at a parent of a device; unix.EINVAL if there is no such qdisc.
func (h *Handle) filters(ifindex int, parent uint32) ([]netlink.Filter, error) {
	return dump(func() ([]netlink.Filter, error) {
		return h.nl.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, parent)
	})
}

// ourFilterAt gives what is in our filter's place; nil if nothing is.
func (h *Handle) ourFilterAt(ifindex int, egress bool) (*netlink.BpfFilter, error) {
	want := ourFilter(ifindex, egress)
	filters, err := h.filters(ifindex, want.Parent)
	switch {
	case errors.Is(err, unix.EINVAL): // no such qdisc
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list filters of device %d: %w", ifindex, gone(err))
	}
	for _, f := range filters {
		a := f.Attrs()
		if b, ok := f.(*netlink.BpfFilter); ok && a.Handle == want.Handle && a.Priority == want.Priority {
			return b, nil
		}
	}
	return nil, nil
}

// ListFilters implements loader.Netlink. It asks the devices that have a clsact qdisc.
func (h *Handle) ListFilters() ([]loader.Filter, error) {
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) {
		return h.nl.QdiscList(nil)
	})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	var list []loader.Filter
	for _, q := range qdiscs {
		if q.Type() != "clsact" {
			continue
		}
		for _, egress := range []bool{false, true} {
			f, err := h.ourFilterAt(q.Attrs().LinkIndex, egress)
			if err != nil && !errors.Is(err, unix.ENODEV) {
				return nil, err
			}
			if f != nil && strings.HasPrefix(f.Name, filterPrefix) {
				list = append(list, loader.Filter{Ifindex: q.Attrs().LinkIndex, Egress: egress, Name: f.Name, Program: uint32(f.Id)})
			}
		}
	}
	return list, nil
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
