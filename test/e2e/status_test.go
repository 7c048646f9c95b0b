// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// O3: what is amiss is said in a sentence each, with a remedy; STATUS and CHECK change nothing
// about it, and reconcile does.
func TestPrivilegedO3Amiss(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.IP(t, "route del default via fd00:10::1")
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e7, EgressRate: 1e7}})
	warned(t, node)
	for _, tc := range []struct {
		name, what, repaired string
		spoil                func()
		check                bool // CHECK tells too
		undo                 func()
	}{
		{"PodPrograms", "lacks the programs: it is neither limited", "attached the programs to " + a.Host.Name, func() {
			node.MustRun(t, "", "tc", "qdisc", "del", "dev", a.Host.Name, "clsact")
		}, true, nil},
		{"IngressShaper", "ingress shaper", "ingress shaper of container a", func() {
			node.MustRun(t, "", "tc", "qdisc", "del", "dev", a.Host.Name, "root")
		}, true, nil},
		{"EgressShaper", "egress shaper", "egress shaper of container a", func() {
			a.MustRun(t, "", "tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo")
		}, true, nil},
		{"AcceptLocal", "net/ipv4/conf/lo/accept_local is 0", "net/ipv4/conf/lo/accept_local", func() {
			node.Sysctl(t, "net/ipv4/conf/lo/accept_local", "0")
		}, false, nil},
		{"Unreachable", "IPv6 has neither", "unreachable IPv6 default route", func() {
			node.IP(t, "route del unreachable ::/0")
		}, false, nil},
		{"Forwarding", "forwarding is off on up0 (IPv4)", "", func() {
			node.Sysctl(t, "net/ipv4/conf/up0/forwarding", "0")
		}, false, func() { node.Sysctl(t, "net/ipv4/conf/up0/forwarding", "1") }},
		{"LeftOut", "device wg0 (tuntap) is no uplink", "", func() {
			node.IP(t, "tuntap add wg0 mode tun", "addr add 10.77.0.1/24 dev wg0", "link set wg0 up")
		}, false, func() { node.IP(t, "link del wg0") }},
		{"OtherBuild", "not of this one", "in the place of another one's", func() { otherBuild(t, node) }, false, nil},
		{"Veth", "", "rp_filter to 0 again", func() { node.Sysctl(t, "net/ipv4/conf/"+a.Host.Name+"/rp_filter", "1") }, false, nil},
		{"MAC", "", "its MAC address back|entry of " + a.V4.String() + "|entry of " + a.V6.String(), func() { node.IP(t, "link set "+a.Host.Name+" address 02:00:00:00:00:99") }, true, nil},
		{"Route", "", "route to " + a.V4.String(), func() { node.IP(t, "route del "+a.V4.String()) }, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.spoil()
			for range 2 { // the first look repaired nothing
				if _, err := node.Exec("STATUS", nil, node.Conf()); err != nil {
					t.Errorf("STATUS: %v, want none: pods can start", err)
				}
				if err := a.Check(); (err != nil) != tc.check {
					t.Errorf("CHECK: %v, want an error: %v", err, tc.check)
				}
				if tc.what != "" {
					warned(t, node, tc.what)
				}
			}
			lines := reconcile(t, node)
			if tc.repaired == "" {
				said(t, lines)
				tc.undo()
			} else {
				said(t, lines, strings.Split(tc.repaired, "|")...)
			}
			said(t, reconcile(t, node))
			if err := a.Check(); err != nil {
				t.Errorf("CHECK after reconcile: %v", err)
			}
			ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "a"})
		})
	}
	warned(t, node)
}

// P8: STATUS takes milliseconds, with pods too. Not in parallel: it is about time.
func TestPrivilegedP8Milliseconds(t *testing.T) {
	node := wire(t, netns.Layout{}).Nodes[0]
	for i := range 4 {
		node.Add(t, netns.PodSpec{Name: string(rune('a' + i)), Ports: netns.Both(8080+i, 80)})
	}
	const most = 50 * time.Millisecond
	var took time.Duration
	for range 3 {
		start := time.Now()
		if _, err := node.Exec("STATUS", nil, node.Conf()); err != nil {
			t.Fatal(err)
		}
		if took = time.Since(start); took < most || netns.Emulated() {
			return
		}
	}
	t.Errorf("STATUS took %s, want less than %s", took, most)
}
