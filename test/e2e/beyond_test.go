// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// beyond is a host two routers away from the nodes, behind a link of another MTU:
//
//	node (up0) -- peer0 -- narrow link -- middle -- host
type beyond struct {
	*netns.NS
	middle *netns.NS
}

// addresses beyond peer0; the middle has .2 of the narrow link, .1 of the host's.
var (
	beyondHost   = map[int]netip.Addr{4: netip.MustParseAddr("10.21.0.2"), 6: netip.MustParseAddr("fd00:21::2")}
	beyondMiddle = map[int]netip.Addr{4: netip.MustParseAddr("10.20.0.2"), 6: netip.MustParseAddr("fd00:20::2")}
	beyondNear   = map[int]netip.Addr{4: netip.MustParseAddr("10.21.0.1"), 6: netip.MustParseAddr("fd00:21::1")}
)

func (b *beyond) Addr(v int) netip.Addr { return beyondHost[v] }

// extend puts the two namespaces behind peer0.
func extend(t *testing.T, c *cluster, mtu int) *beyond {
	t.Helper()
	b := &beyond{NS: netns.New(t, "beyond"), middle: netns.New(t, "middle")}
	peer := c.Outside()
	peer.IP(t, fmt.Sprintf("link add narrow mtu %d type veth peer name narrow mtu %d netns %s", mtu, mtu, b.middle.Path()),
		"link set narrow up", "addr add 10.20.0.1/24 dev narrow", "addr add fd00:20::1/64 dev narrow nodad")
	b.middle.IP(t, "link add wide type veth peer name eth0 netns "+b.Path(),
		"link set narrow up", "addr add 10.20.0.2/24 dev narrow", "addr add fd00:20::2/64 dev narrow nodad",
		"link set wide up", "addr add 10.21.0.1/24 dev wide", "addr add fd00:21::1/64 dev wide nodad",
		"route add default via 10.20.0.1", "route add default via fd00:20::1")
	b.IP(t, "link set eth0 up", "addr add 10.21.0.2/24 dev eth0", "addr add fd00:21::2/64 dev eth0 nodad",
		"route add default via 10.21.0.1", "route add default via fd00:21::1")
	peer.IP(t, "route add 10.21.0.0/24 via 10.20.0.2", "route add fd00:21::/64 via fd00:20::2")
	for _, ns := range []*netns.NS{peer.NS, b.middle} {
		ns.Sysctl(t, "net/ipv4/ip_forward", "1")
		ns.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
		ns.Sysctl(t, "net/ipv4/icmp_ratelimit", "0") // traces are many
		ns.Sysctl(t, "net/ipv6/icmp/ratelimit", "0")
	}
	peer.Settle(t, "narrow", netip.MustParseAddr("fd00:20::1"))
	b.middle.Settle(t, "narrow", beyondMiddle[6])
	b.middle.Settle(t, "wide", beyondNear[6])
	b.Settle(t, "eth0", beyondHost[6])
	return b
}

// unlimit has a node send as many ICMP errors as it is asked for.
func unlimit(t *testing.T, n *netns.NS) {
	t.Helper()
	n.Sysctl(t, "net/ipv4/icmp_ratelimit", "0")
	n.Sysctl(t, "net/ipv6/icmp/ratelimit", "0")
}
