// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// SetUplinks attaches the programs to those devices of want that lack them, by whichever
// way they might be there, and detaches them from all others. want is called under the
// lock that AttachUplink takes, and gives nil for devices that it cannot tell. It goes on
// after an error.
func (d *Datapath) SetUplinks(want func() ([]int, error)) (attached, detached []int, err error) {
	unlock, err := d.Lock()
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	wanted, err := want()
	if err != nil {
		return nil, nil, err
	}
	errs := []error{d.sweep()}
	list, err := attachments(d.dirs)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range list {
		if a.hook.device != "uplink" || slices.Contains(wanted, a.ifindex) {
			continue
		}
		if err := errors.Join(d.detachTCX(a.hook, a.ifindex), d.detachClsact(a.hook, a.ifindex)); err != nil {
			errs = append(errs, fmt.Errorf("detach %s from iface %d: %w", a.hook.program, a.ifindex, err))
		} else if !slices.Contains(detached, a.ifindex) {
			detached = append(detached, a.ifindex)
		}
	}
	for _, ifindex := range wanted {
		if err := d.check(uplinkHooks(), ifindex); gone(err) || err == nil && d.wanted(uplinkHooks(), ifindex) {
			continue
		}
		if err := d.attach(uplinkHooks(), ifindex); err != nil {
			errs = append(errs, err)
			continue
		}
		attached = append(attached, ifindex)
	}
	return attached, detached, errors.Join(errs...)
}

// OnUplinks says whether there is a link or a mark of any uplink, if only of one direction.
func (d *Datapath) OnUplinks() (bool, error) {
	list, err := attachments(d.dirs)
	return slices.ContainsFunc(list, func(a attachment) bool { return a.hook.device == "uplink" }), err
}

// DetachUplink takes the programs off a device. It is idempotent.
func (d *Datapath) DetachUplink(ifindex int) error { return d.detachShared(uplinkHooks(), ifindex) }

// IsFilterOf says whether a filter belongs to a pinPath.
func IsFilterOf(f Filter, pinPath string) bool {
	_, ok := hookNamed(f, filepath.Clean(pinPath))
	return ok
}
