// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/address"
	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// leases reads which addresses this node's pods hold, or held. Rows have the kernel's clock,
// which stands still while the machine sleeps: booted is what both are told apart by.
type leases struct {
	pinPath string
	booted  time.Time
}

func newLeases(pinPath string) *leases {
	return &leases{pinPath: pinPath, booted: time.Now().Add(-clock(unix.CLOCK_MONOTONIC))}
}

// clock reads a clock of the kernel.
func clock(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t) // it does not fail
	return time.Duration(t.Nano())
}

// list fails, rather than say that nobody holds an address, where that is not known.
func (l *leases) list() ([]kube.Lease, error) {
	t, err := loader.OpenAddresses(loader.Options{PinPath: l.pinPath})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if err := rebuild(t); err != nil {
		return nil, err
	}
	var list []kube.Lease
	for row, err := range t.Leases() {
		if err != nil {
			return nil, err
		}
		if row.Network != agent.NetworkName {
			continue
		}
		list = append(list, kube.Lease{
			Addr: row.Addr, Container: row.Container, Released: row.State == maps.AddressReleased,
			Since: l.booted.Add(row.Since).Truncate(time.Second),
		})
	}
	return list, nil
}

// rebuild gives the pods that live the leases that a table made anew does not tell of, once.
func rebuild(t *loader.Addresses) error {
	if done, err := t.Rebuilt(); err != nil || done {
		return err
	}
	handle, err := netdev.Open()
	if err != nil {
		return err
	}
	defer handle.Close()
	p := address.Pool{Table: t.Addresses, Lock: t.Lock, Now: func() time.Duration { return clock(unix.CLOCK_MONOTONIC) }, CoolDown: address.CoolDown}
	_, err = p.Rebuild(func() ([]maps.Iface, error) { return podnet.Witnesses(handle) })
	return err
}
