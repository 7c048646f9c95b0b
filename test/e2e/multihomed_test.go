// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// H13: on a node with two providers, each of which drops what comes from the other's
// address, the reply leaves by the one that fits the called address. Both ways lead to
// the same client, and the main table knows the first alone: the rules decide.
func TestPrivilegedH13MultiHomed(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2})
	node := c.Nodes[0]
	client, at := twoProviders(t, c)
	up0, up1 := node.Uplinks[0], node.Uplinks[1]
	ports := append(netns.Both(8080, 80), append(netns.Both(8081, 80, up1.V4.String()), netns.Both(8081, 80, up1.V6.String())...)...)
	serve(t, node, netns.PodSpec{Name: "a", Ports: ports})
	masq := node.Add(t, netns.PodSpec{Name: "masq", Conf: map[string]any{"ipMasq": true}})
	client.Serve(t, 80)
	node.Serve(t, 80)

	// Without rules the reply takes the default route: the test would notice.
	each(t, small, func(t *testing.T, proto string, v int) {
		refuse(t, client, call(proto, up1.Addr(v), 8080))
	})
	for i, up := range node.Uplinks {
		for v, gateway := range map[string]netip.Addr{"-4": c.Peers[i].V4, "-6": c.Peers[i].V6} {
			family := int(v[1] - '0')
			table := fmt.Sprint(101 + i)
			node.MustRun(t, "", "ip", v, "route", "add", "default", "via", gateway.String(), "dev", up.Dev, "table", table)
			node.MustRun(t, "", "ip", v, "rule", "add", "from", up.Addr(family).String(), "lookup", table)
		}
	}
	for _, filter := range []string{"0", "1", "2"} {
		for _, dev := range []string{"all", "up0", "up1"} {
			node.Sysctl(t, "net/ipv4/conf/"+dev+"/rp_filter", filter)
		}
		t.Run("rp_filter"+filter, func(t *testing.T) {
			each(t, protos, func(t *testing.T, proto string, v int) {
				ask(t, client, call(proto, up0.Addr(v), 80), want{server: node.Name, remote: only(at(v))})
				ask(t, client, call(proto, up1.Addr(v), 80), want{server: node.Name, remote: only(at(v))})
				ask(t, client, call(proto, up0.Addr(v), 8080), want{server: "a", remote: only(at(v))})
				ask(t, client, call(proto, up1.Addr(v), 8080), want{server: "a", remote: only(at(v))})
				ask(t, client, call(proto, up1.Addr(v), 8081), want{server: "a", remote: only(at(v))})
				ask(t, masq.NS, call(proto, at(v), 80), want{server: client.Name, remote: only(up0.Addr(v))})
			})
		})
	}
}

// twoProviders makes a client behind both peers, which reaches each of the node's networks
// through the peer that is on it.
func twoProviders(t *testing.T, c *cluster) (client *netns.NS, at func(int) netip.Addr) {
	t.Helper()
	client = netns.New(t, "client")
	own := netns.Uplink{V4: netip.MustParseAddr("198.51.100.7"), V6: netip.MustParseAddr("2001:db8:7::7")}
	client.IP(t, fmt.Sprintf("addr add %s/32 dev lo", own.V4), fmt.Sprintf("addr add %s/128 dev lo nodad", own.V6))
	for i, p := range c.Peers {
		dev := fmt.Sprintf("c%d", i)
		p.IP(t, fmt.Sprintf("link add client type veth peer name %s netns %s", dev, client.Path()),
			"link set client up", fmt.Sprintf("addr add 10.2%d.0.1/24 dev client", i), fmt.Sprintf("addr add fd00:2%d::1/64 dev client nodad", i))
		client.IP(t, fmt.Sprintf("link set %s up", dev), fmt.Sprintf("addr add 10.2%d.0.2/24 dev %s", i, dev), fmt.Sprintf("addr add fd00:2%d::2/64 dev %s nodad", i, dev),
			fmt.Sprintf("route add 10.1%d.0.0/24 via 10.2%d.0.1 src %s", i, i, own.V4),
			fmt.Sprintf("route add fd00:1%d::/64 via fd00:2%d::1 src %s", i, i, own.V6))
		client.Sysctl(t, "net/ipv4/conf/"+dev+"/rp_filter", "0")
		p.IP(t, fmt.Sprintf("route add %s via 10.2%d.0.2", own.V4, i), fmt.Sprintf("route add %s via fd00:2%d::2", own.V6, i))
		p.Sysctl(t, "net/ipv4/ip_forward", "1")
		p.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
		other := c.Nodes[0].Uplinks[1-i]
		p.MustRun(t, fmt.Sprintf(ingressFilter, other.V4, other.V6), "nft", "-f", "-")
		client.Settle(t, dev, netip.MustParseAddr(fmt.Sprintf("fd00:2%d::2", i)))
		p.Settle(t, "client", netip.MustParseAddr(fmt.Sprintf("fd00:2%d::1", i)))
	}
	client.Sysctl(t, "net/ipv4/conf/all/rp_filter", "0")
	return client, own.Addr
}

// ingressFilter is what a provider does with an address that it did not give (BCP 38).
const ingressFilter = `
table inet provider {
	chain forward {
		type filter hook forward priority 0
		ip saddr %s drop
		ip6 saddr %s drop
	}
}
`
