// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// netfilter is a way to write other people's rules: kube-proxy's for services, CRI-O's
// for hostPorts (a service's nodePort and endpoint), and a filter under which
// nothing is forwarded but what they translate; and to flush them all.
type netfilter struct {
	name      string
	proxy     func(*testing.T, *netns.Node, []service)
	hostPorts func(*testing.T, *netns.Node, []service)
	strict    func(*testing.T, *netns.Node)
	flush     func(*testing.T, *netns.Node)
}

var netfilters = []netfilter{
	{"nft", kubeProxy, crioByNft, strictByNft, flushNft},
	byIptables("nft"),
	byIptables("legacy"),
}

func ipFamily(family int) string { return map[int]string{4: "ip", 6: "ip6"}[family] }

// eachRule calls f for every service, family and protocol.
func eachRule(services []service, f func(s service, family int, proto string)) {
	for _, s := range services {
		for _, family := range families {
			for _, proto := range small {
				f(s, family, proto)
			}
		}
	}
}

// crioByNft writes hostPorts as CRI-O does: DNAT for what is addressed to the node, and
// masquerade for a pod that calls itself.
func crioByNft(t *testing.T, n *netns.Node, ports []service) {
	t.Helper()
	var dnat, masq strings.Builder
	eachRule(ports, func(s service, family int, proto string) {
		to := s.endpoint(family)
		fmt.Fprintf(&dnat, "meta nfproto ipv%d %s dport %d dnat %s to %s\n", family, proto, s.nodePort, ipFamily(family), netip.AddrPortFrom(to, 80))
		fmt.Fprintf(&masq, "%[1]s saddr %[2]s %[1]s daddr %[2]s %[3]s dport 80 masquerade\n", ipFamily(family), to, proto)
	})
	n.MustRun(t, fmt.Sprintf(crioTable, dnat.String(), masq.String()), "nft", "-f", "-")
}

const crioTable = `
table inet crio-hostports {
	chain hostports {
		%s
	}
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		fib daddr type local jump hostports
	}
	chain output {
		type nat hook output priority -100; policy accept;
		fib daddr type local jump hostports
	}
	chain masquerading {
		type nat hook postrouting priority srcnat; policy accept;
		ct status dnat jump hairpin
	}
	chain hairpin {
		%s
	}
}
`

func strictByNft(t *testing.T, n *netns.Node) {
	t.Helper()
	n.MustRun(t, `
table inet strict {
	chain forward {
		type filter hook forward priority 10; policy drop;
		ct state invalid drop
		ct status & (snat | dnat) != 0 accept
	}
}
`, "nft", "-f", "-")
}

func flushNft(t *testing.T, n *netns.Node) { t.Helper(); n.MustRun(t, "", "nft", "flush", "ruleset") }

// byIptables is the same by iptables, with either of its backends.
func byIptables(backend string) netfilter {
	restore := func(t *testing.T, n *netns.Node, family int, rules string) {
		t.Helper()
		tool := map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + backend
		if out, err := n.Run("", tool, "-t", "nat", "-S"); err != nil {
			t.Skipf("%s cannot be had: %v: %s", tool, err, out)
		}
		n.MustRun(t, rules, tool+"-restore", "--wait", "--noflush")
	}
	return netfilter{
		name: "iptables-" + backend,
		proxy: func(t *testing.T, n *netns.Node, services []service) {
			t.Helper()
			for _, family := range families {
				restore(t, n, family, iptablesProxy(services, family))
			}
		},
		hostPorts: func(t *testing.T, n *netns.Node, ports []service) {
			t.Helper()
			for _, family := range families {
				restore(t, n, family, iptablesHostPorts(ports, family))
			}
		},
		strict: func(t *testing.T, n *netns.Node) {
			t.Helper()
			for _, family := range families {
				restore(t, n, family, iptablesStrict)
			}
		},
		flush: func(t *testing.T, n *netns.Node) {
			t.Helper()
			for _, family := range families {
				restore(t, n, family, iptablesFlush)
			}
		},
	}
}

// iptablesProxy is one family's rules in kube-proxy's shape.
func iptablesProxy(services []service, family int) string {
	var w strings.Builder
	eachRule(services, func(s service, f int, proto string) {
		if f != family {
			return
		}
		to := s.endpoint(family)
		sep, ext := fmt.Sprintf("KUBE-SEP-%d-%s", s.number, proto), fmt.Sprintf("KUBE-EXT-%d-%s", s.number, proto)
		fmt.Fprintf(&w, "-N %[1]s\n-A %[1]s -s %[2]s -j KUBE-MARK-MASQ\n", sep, to)
		fmt.Fprintf(&w, "-A %s -p %[2]s -m %[2]s -j DNAT --to-destination %[3]s\n", sep, proto, netip.AddrPortFrom(to, 80))
		fmt.Fprintf(&w, "-A KUBE-SERVICES -d %s -p %[2]s -m %[2]s --dport 80 -j %[3]s\n", s.clusterAddr(family), proto, sep)
		if s.nodePort == 0 {
			return
		}
		fmt.Fprintf(&w, "-N %s\n", ext)
		if !s.local {
			fmt.Fprintf(&w, "-A %s -j KUBE-MARK-MASQ\n", ext)
		}
		fmt.Fprintf(&w, "-A %s -j %s\n-A KUBE-NODEPORTS -p %[3]s -m %[3]s --dport %[4]d -j %[1]s\n", ext, sep, proto, s.nodePort)
	})
	return fmt.Sprintf(iptablesKube, w.String())
}

const iptablesKube = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
%s-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
COMMIT
*filter
:KUBE-FORWARD - [0:0]
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -j KUBE-FORWARD
COMMIT
`

// iptablesHostPorts is one family's rules in CRI-O's shape.
func iptablesHostPorts(ports []service, family int) string {
	var w strings.Builder
	eachRule(ports, func(s service, f int, proto string) {
		if f != family {
			return
		}
		to, hp := s.endpoint(family), fmt.Sprintf("KUBE-HP-%d-%s", s.number, proto)
		fmt.Fprintf(&w, "-N %[1]s\n-A %[1]s -p %[2]s -m %[2]s -j DNAT --to-destination %[3]s\n", hp, proto, netip.AddrPortFrom(to, 80))
		fmt.Fprintf(&w, "-A KUBE-HOSTPORTS -p %[1]s -m %[1]s --dport %[2]d -j %[3]s\n", proto, s.nodePort, hp)
		fmt.Fprintf(&w, "-A CRIO-HOSTPORTS-MASQ -m conntrack --ctstate DNAT -p %[1]s -m %[1]s --dport 80 -s %[2]s -d %[2]s -j MASQUERADE\n", proto, to)
	})
	return fmt.Sprintf(iptablesCrio, w.String())
}

const iptablesCrio = `*nat
:KUBE-HOSTPORTS - [0:0]
:CRIO-HOSTPORTS-MASQ - [0:0]
%s-I PREROUTING -m addrtype --dst-type LOCAL -j KUBE-HOSTPORTS
-I OUTPUT -m addrtype --dst-type LOCAL -j KUBE-HOSTPORTS
-A POSTROUTING -j CRIO-HOSTPORTS-MASQ
COMMIT
`

const iptablesStrict = `*filter
:FORWARD DROP [0:0]
-I FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT
-A FORWARD -m conntrack --ctstate SNAT -j ACCEPT
COMMIT
`

const iptablesFlush = `*nat
-F
-X
COMMIT
*filter
-F
-X
COMMIT
`
