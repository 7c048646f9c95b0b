// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Netlink is the only way to clsact; cmd/internal/netdev implements it. Our filter has
// handle 1 and priority 0x4355 ("CU") and lives in the network namespace of the caller.
// A device that is gone is an error that wraps unix.ENODEV.
type Netlink interface {
	// AttachClsact adds the clsact qdisc if it is missing and puts our filter there,
	// in the place of the one that may be, without a moment in which there is none.
	AttachClsact(ifindex int, egress bool, progFD int, name string) error
	// DetachClsact removes our filter, never a qdisc. It is no error that there is none.
	DetachClsact(ifindex int, egress bool) error
	// HasClsact says whether our filter is there.
	HasClsact(ifindex int, egress bool) (bool, error)
	// ListFilters lists our filters, those of every pinPath, on all devices.
	ListFilters() ([]Filter, error)
	// HasQdisc says whether the kernel has qdiscs of a kind, after having it load the
	// module. It touches no device of the node.
	HasQdisc(kind string) (bool, error)
}

// noNetlink is who only looks: culvertctl.
type noNetlink struct{}

var errNoNetlink = errors.New("this program cannot manage clsact filters and qdiscs")

func (noNetlink) AttachClsact(int, bool, int, string) error { return errNoNetlink }
func (noNetlink) DetachClsact(int, bool) error              { return errNoNetlink }
func (noNetlink) HasClsact(int, bool) (bool, error)         { return false, errNoNetlink }
func (noNetlink) ListFilters() ([]Filter, error)            { return nil, errNoNetlink }
func (noNetlink) HasQdisc(string) (bool, error)             { return false, errNoNetlink }

// FakeNetlink is the Netlink of tests: filters in memory.
type FakeNetlink struct {
	mu sync.Mutex
	// Filters are the names of the filters, by device and direction.
	Filters map[FakeHook]string
	// Attached counts the calls of AttachClsact.
	Attached int
	// Gone are devices that exist no more.
	Gone map[int]bool
	// Lacks are the kinds of qdisc that the kernel has not.
	Lacks map[string]bool
}

// FakeHook is a place for a filter.
type FakeHook struct {
	Ifindex int
	Egress  bool
}

func (f *FakeNetlink) AttachClsact(ifindex int, egress bool, progFD int, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Gone[ifindex] {
		return fmt.Errorf("attach filter to %d: %w", ifindex, unix.ENODEV)
	}
	if progFD <= 0 {
		return fmt.Errorf("attach filter to %d: %w", ifindex, unix.EBADF)
	}
	if f.Filters == nil {
		f.Filters = map[FakeHook]string{}
	}
	f.Filters[FakeHook{ifindex, egress}] = name
	f.Attached++
	return nil
}

func (f *FakeNetlink) DetachClsact(ifindex int, egress bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.Filters, FakeHook{ifindex, egress})
	return nil
}

func (f *FakeNetlink) HasClsact(ifindex int, egress bool) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Gone[ifindex] {
		return false, fmt.Errorf("list filters of %d: %w", ifindex, unix.ENODEV)
	}
	_, ok := f.Filters[FakeHook{ifindex, egress}]
	return ok, nil
}

// ListFilters knows no programs.
func (f *FakeNetlink) ListFilters() ([]Filter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Filter
	for h, name := range f.Filters {
		list = append(list, Filter{Ifindex: h.Ifindex, Egress: h.Egress, Name: name})
	}
	return list, nil
}

func (f *FakeNetlink) HasQdisc(kind string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.Lacks[kind], nil
}
