// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// H15: a hostPort of SCTP works with the container's port equal to it and with another,
// from everywhere, whether the sender's device sums up its packets or leaves that to a
// hardware; and SCTP leaves by masquerade. The kernel needs SCTP: test/lab/vm-run.sh.
func TestPrivilegedH15SCTP(t *testing.T) {
	t.Parallel()
	netns.NeedsSCTP(t)
	for _, sums := range []bool{false, true} {
		t.Run(fmt.Sprintf("checksums=%v", sums), func(t *testing.T) {
			t.Parallel()
			runSCTP(t, sums)
		})
	}
}

func runSCTP(t *testing.T, sums bool) {
	c := wire(t, netns.Layout{Nodes: 2})
	node, outside := c.Nodes[0], c.Outside()
	ports := []netns.PortMapping{
		{HostPort: 7000, ContainerPort: 7000, Protocol: "sctp"}, // equal
		{HostPort: 7001, ContainerPort: 7002, Protocol: "SCTP"},
	}
	a := node.Add(t, netns.PodSpec{Name: "a", Ports: ports})
	b := node.Add(t, netns.PodSpec{Name: "b", Conf: masquerading("10.244.0.0/16", "fd00:244::/32")})
	remote := c.Nodes[1].Add(t, netns.PodSpec{Name: "remote"})
	if sums {
		a.Checksums(t, a.IfName)
		b.Checksums(t, b.IfName)
		remote.Checksums(t, remote.IfName)
		outside.Checksums(t, "br0")
	}
	for _, v := range families {
		a.ServeSCTP(t, netip.AddrPortFrom(a.Addr(v), 7000))
		a.ServeSCTP(t, netip.AddrPortFrom(a.Addr(v), 7002))
		outside.ServeSCTP(t, netip.AddrPortFrom(outside.Addr(v), 7000))
	}
	up := node.Uplinks[0].Addr
	hidden := at(map[int]netip.Addr{4: netip.MustParseAddr("169.254.1.1"), 6: gateway})
	for _, tc := range []struct {
		name          string
		from          *netns.NS
		src, to, seen func(int) netip.Addr
		port          uint16
		server        string
	}{
		{"FromOutside", outside.NS, outside.Addr, up, outside.Addr, 0, "a"},
		{"FromPod", b.NS, b.Addr, up, b.Addr, 0, "a"},
		{"FromRemotePod", remote.NS, remote.Addr, up, remote.Addr, 0, "a"},
		{"FromHost", node.NS, up, up, up, 0, "a"},
		{"FromItself", a.NS, a.Addr, up, hidden, 0, "a"},
		{"Loopback", node.NS, at(loopback), at(loopback), hidden, 0, "a"},
		{"Pod", outside.NS, outside.Addr, a.Addr, outside.Addr, 7002, "a"},
		{"Masquerade", b.NS, b.Addr, outside.Addr, up, 7000, outside.Name},
	} {
		for _, v := range families {
			for _, port := range []uint16{7000, 7001} {
				if tc.port != 0 {
					port = tc.port
				}
				t.Run(fmt.Sprintf("%s/%d/%d", tc.name, v, port), func(t *testing.T) {
					sizes := []int{1, 1000, 8000}
					if tc.from == node.NS {
						sizes = sizes[:2] // what is cut for lo is too big for the pod: I2
					}
					for _, size := range sizes {
						r, err := tc.from.AskSCTP(tc.src(v), netip.AddrPortFrom(tc.to(v), port), size)
						if err == nil {
							err = want{server: tc.server, remote: only(tc.seen(v))}.check(r)
						}
						if err != nil {
							t.Errorf("%d bytes: want an answer by %s to %s, got %v", size, tc.server, tc.seen(v), err)
						}
					}
				})
			}
		}
	}
}
