// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// Neighbour makes it known for good who has an address on a device's link.
func (n *Node) Neighbour(tb testing.TB, d Device, a netip.Addr, mac MAC) {
	tb.Helper()
	err := n.netlink.NeighSet(&netlink.Neigh{LinkIndex: d.Index, IP: a.AsSlice(), HardwareAddr: net.HardwareAddr(mac[:]),
		State: netlink.NUD_PERMANENT})
	if err != nil {
		tb.Fatalf("add neighbour %s: %v", a, err)
	}
}
