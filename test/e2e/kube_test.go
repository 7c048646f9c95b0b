// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// service is one that kube-proxy would put on every node: a cluster address and,
// if nodePort is not 0, a port of the nodes, both leading to one endpoint's port
// 80, for TCP and UDP.
type service struct {
	number   int // of the cluster address
	nodePort int
	local    bool                 // externalTrafficPolicy: Local, the client's address is kept
	endpoint func(int) netip.Addr // by family
}

// clusterAddr is the address of a service in family 4 or 6; its port is 80.
func (s service) clusterAddr(family int) netip.Addr {
	if family == 6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:96::%d", s.number))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", s.number))
}

// kubeProxy writes the services' rules on a node in kube-proxy's shape: DNAT in
// prerouting and output, the mark 0x4000 for what is to be masqueraded, and
// `ct state invalid drop` in forward.
func kubeProxy(t *testing.T, n *netns.Node, services []service) {
	t.Helper()
	var chains, clusterIPs, nodePorts strings.Builder
	for _, s := range services {
		for _, family := range families {
			for _, proto := range []string{"tcp", "udp"} {
				s.rules(&chains, &clusterIPs, &nodePorts, family, proto)
			}
		}
	}
	n.MustRun(t, fmt.Sprintf(kubeTable, chains.String(), nodePorts.String(), clusterIPs.String()), "nft", "-f", "-")
}

// rules adds those of one service, family and protocol: the endpoint's chain
// (which marks what the endpoint itself sent), and the ways to it.
func (s service) rules(chains, clusterIPs, nodePorts *strings.Builder, family int, proto string) {
	ip := map[int]string{4: "ip", 6: "ip6"}[family]
	to := s.endpoint(family)
	chain := fmt.Sprintf("endpoint-%d-%s-%d", s.number, proto, family)
	fmt.Fprintf(chains, "chain %s {\n%s saddr %s jump mark-for-masquerade\nmeta l4proto %s dnat %s to %s\n}\n",
		chain, ip, to, proto, ip, netip.AddrPortFrom(to, 80))
	fmt.Fprintf(clusterIPs, "%s daddr %s %s dport 80 jump %s\n", ip, s.clusterAddr(family), proto, chain)
	if s.nodePort == 0 {
		return
	}
	external := fmt.Sprintf("external-%d-%s-%d", s.number, proto, family)
	masquerade := "jump mark-for-masquerade\n"
	if s.local {
		masquerade = ""
	}
	fmt.Fprintf(chains, "chain %s {\n%sjump %s\n}\n", external, masquerade, chain)
	fmt.Fprintf(nodePorts, "meta nfproto %s %s dport %d jump %s\n", map[int]string{4: "ipv4", 6: "ipv6"}[family], proto, s.nodePort, external)
}

const kubeTable = `
table inet kube-proxy {
	chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
	%s
	chain nodeports {
		%s
	}
	chain services {
		%s
		fib daddr type local jump nodeports
	}
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}
	chain output {
		type nat hook output priority -100; policy accept;
		jump services
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x4000 == 0 return
		meta mark set meta mark xor 0x4000
		masquerade fully-random
	}
	chain forward {
		type filter hook forward priority 0; policy accept;
		ct state invalid drop
	}
}
`
