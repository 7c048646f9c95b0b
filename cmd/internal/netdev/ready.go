// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	readyTimeout = 10 * time.Second // far beyond what a machine under load takes
	longestPause = 50 * time.Millisecond
)

// AwaitReady waits until a device that is up, as is its peer, sends and receives. The
// kernel puts its queue and its IPv6 to work in a work item of its own after the carrier
// came (linkwatch); until then what is sent is dropped without a word. From 6.8 on the
// question alone has that done.
func (h *Handle) AwaitReady(index int) error {
	deadline := time.After(readyTimeout)
	// The question takes rtnl, which is what the work item waits for: ask less and less often.
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		l, err := h.nl.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("await device %d: %w", index, gone(err))
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-deadline:
			return fmt.Errorf("await device %d: %s after %v", index, l.Attrs().OperState, readyTimeout)
		}
	}
}
