// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// readyTimeout is far beyond what a machine under load takes.
const readyTimeout = 10 * time.Second

// await asks every millisecond whether it is so, until it is.
func await(what string, so func() (bool, error)) error {
	deadline := time.After(readyTimeout)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-deadline:
			return fmt.Errorf("await %s: not so after %v", what, readyTimeout)
		}
	}
}

// AwaitReady waits until a device that is up, as is its peer, sends and receives. The
// kernel puts its queue and its IPv6 to work in a work item of its own after the carrier
// came (linkwatch); until then what is sent is dropped without a word. From 6.8 on the
// question alone has that done.
func (h *Handle) AwaitReady(index int) error {
	return await(fmt.Sprintf("that device %d is up", index), func() (bool, error) {
		l, err := h.nl.LinkByIndex(index)
		if err != nil {
			return false, fmt.Errorf("look up device %d: %w", index, gone(err))
		}
		return l.Attrs().OperState == netlink.OperUp, nil
	})
}

// AwaitLocal waits until an address receives. IPv4's does at once; of IPv6 a work item
// makes the local route, also of an address that needs no duplicate address detection.
func (h *Handle) AwaitLocal(addr netip.Addr) error {
	if addr.Is4() {
		return nil
	}
	return await(fmt.Sprintf("that %s is local", addr), func() (bool, error) {
		routes, err := h.nl.RouteGet(addr.AsSlice())
		if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look up route to %s: %w", addr, err)
		}
		return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
	})
}
