// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// Settle waits for what the kernel does in its own time after a device is set up
// and given IPv6 addresses: until its queue is active it drops what it sends, and
// until the addresses' multicast groups are joined nobody finds it.
func (ns *NS) Settle(tb testing.TB, dev string, addrs ...netip.Addr) {
	tb.Helper()
	err := Poll(func() error {
		out, err := ns.Run("", "ip", "-oneline", "link", "show", "dev", dev)
		if err != nil {
			return err
		}
		if !strings.Contains(out, " state UP ") {
			return fmt.Errorf("device %s of %s is not up: %s", dev, ns.Name, out)
		}
		var groups []byte
		if err := ns.Do(func() (err error) { groups, err = os.ReadFile("/proc/thread-self/net/igmp6"); return err }); err != nil {
			return err
		}
		for _, a := range addrs {
			b := a.As16()
			group := fmt.Sprintf("%s ff0200000000000000000001ff%x", dev, b[13:])
			if !strings.Contains(strings.Join(strings.Fields(string(groups)), " "), group) {
				return fmt.Errorf("device %s of %s has not joined the group of %s", dev, ns.Name, a)
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("wait for the kernel: %v", err)
	}
}
