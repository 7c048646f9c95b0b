// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What is put on a veth that another plugin made, beside what others have put there, and
// taken off again while the device stays.

// ErrNoPeer says that a device has no other end where one is looked for.
var ErrNoPeer = errors.New("no other end")

// PeerIn finds the device of this namespace that is the other end of inside, which lives
// in ns; ErrNoPeer if there is none. Numbers of two namespaces alone may agree by chance:
// the kernel is asked in which namespace the other end's other end is.
func (h *Handle) PeerIn(ns *Namespace, inside Link) (Link, error) {
	if inside.Kind != "veth" || inside.PeerIndex == 0 {
		return Link{}, ErrNoPeer
	}
	l, err := h.nl.LinkByIndex(inside.PeerIndex)
	if errors.Is(gone(err), unix.ENODEV) {
		return Link{}, ErrNoPeer
	}
	if err != nil {
		return Link{}, fmt.Errorf("look up device %d: %w", inside.PeerIndex, err)
	}
	outside := toLink(l)
	if outside.Kind != "veth" || outside.PeerIndex != inside.Index {
		return Link{}, ErrNoPeer
	}
	id, err := h.nl.GetNetNsIdByFd(ns.fd())
	if err != nil {
		return Link{}, fmt.Errorf("look up namespace %s: %w", ns.Path, err)
	}
	if id != l.Attrs().NetNsID {
		return Link{}, ErrNoPeer
	}
	return outside, nil
}

// ForeignQdisc describes the qdisc at the root of a device if somebody has put it there
// who is not us; "" if there is none but the kernel's default, which has no number.
func (h *Handle) ForeignQdisc(index int) (string, error) {
	root, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err != nil || root.kind == "" || root.kind == "noqueue" || root.handle == 0 || root.handle == shaperHandle {
		return "", err
	}
	return fmt.Sprintf("%s %x:", root.kind, root.handle>>16), nil
}

// DropShaper takes our shaper off a device and leaves anybody else's. What waits in it is
// lost. It is no error that there is none, or no device.
func (h *Handle) DropShaper(index int) error {
	root, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err == nil && root.handle == shaperHandle {
		err = h.deleteShaper(index)
	}
	if errors.Is(err, unix.EINVAL) { // what is at the root has another number: somebody was faster
		if root, again := h.qdisc(index, netlink.HANDLE_ROOT); again == nil && root.handle != shaperHandle {
			return nil
		}
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// HasClsactQdisc says whether a device has a qdisc for filters, whosever it is.
func (h *Handle) HasClsactQdisc(index int) (bool, error) {
	q, err := h.qdisc(index, netlink.HANDLE_CLSACT)
	if errors.Is(err, unix.EINVAL) { // the kernel has nothing to tell
		return false, nil
	}
	return q.kind == "clsact" || q.kind == "ingress", err
}

// busyTimeout is how long a qdisc is asked for again that the kernel keeps while somebody
// else's request for a filter of it is under way.
const busyTimeout = time.Second

// DropClsact deletes the clsact qdisc of a device if no filter is left in it. It is no
// error that there is none, or no device.
func (h *Handle) DropClsact(index int) error {
	deadline := time.After(busyTimeout)
	for {
		err := h.dropClsact(index)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-deadline:
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

func (h *Handle) dropClsact(index int) error {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := h.filters(index, parent)
		err = gone(err)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV): // no such qdisc, no such device
			return nil
		case err != nil:
			return fmt.Errorf("list filters of device %d: %w", index, err)
		case len(filters) > 0:
			return nil
		}
	}
	err := h.nl.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	err = gone(err)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete clsact of device %d: %w", index, err)
	}
	delete(h.clsact, index)
	return nil
}
