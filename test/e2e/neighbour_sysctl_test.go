// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// written are settings that systemd-sysctl, udev's rules for new devices, hardening guides
// and load balancers write, at any time, to all devices or to each one. %s is the device.
var written = []struct {
	name   string
	values []string // one after the other
}{
	{"net/ipv4/conf/%s/rp_filter", []string{"1", "2", "0", "1"}},
	{"net/ipv4/conf/%s/promote_secondaries", []string{"1"}},
	{"net/ipv4/conf/%s/accept_source_route", []string{"0"}},
	{"net/ipv4/conf/%s/accept_redirects", []string{"0", "1"}},
	{"net/ipv4/conf/%s/secure_redirects", []string{"0"}},
	{"net/ipv4/conf/%s/send_redirects", []string{"1", "0"}},
	{"net/ipv4/conf/%s/shared_media", []string{"0"}},
	{"net/ipv4/conf/%s/log_martians", []string{"1"}},
	{"net/ipv4/conf/%s/arp_ignore", []string{"1", "2", "0"}},
	{"net/ipv4/conf/%s/arp_announce", []string{"2"}},
	{"net/ipv4/conf/%s/arp_filter", []string{"1", "0"}},
	{"net/ipv4/conf/%s/drop_gratuitous_arp", []string{"1"}},
	{"net/ipv4/conf/%s/src_valid_mark", []string{"1"}},
	{"net/ipv6/conf/%s/accept_ra", []string{"0", "2"}},
	{"net/ipv6/conf/%s/accept_redirects", []string{"0", "1"}},
	{"net/ipv6/conf/%s/accept_source_route", []string{"0"}},
	{"net/ipv6/conf/%s/use_tempaddr", []string{"2"}},
	{"net/ipv6/conf/%s/addr_gen_mode", []string{"1"}},
	{"net/ipv6/conf/%s/drop_unsolicited_na", []string{"1"}},
}

// N5: what others write to the node's settings, also to those of our veths and of lo, after
// ADD and during traffic, stops no open flow and no new one, and CHECK has nothing to say.
func TestPrivilegedN5Sysctls(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: masquerading()})
	outside.Serve(t, 80)
	flows := everyWay(c, a)
	for _, proto := range small {
		for _, v := range families {
			flows = append(flows, steady{from: b.NS, call: call(proto, a.Addr(v), 80), want: want{server: "a", remote: only(b.Addr(v))}},
				steady{from: b.NS, call: call(proto, outside.Addr(v), 80), want: want{server: outside.Name, remote: only(node.Uplinks[0].Addr(v))}})
		}
	}
	rounds, stop := keepAsking(t, flows)
	for _, setting := range written {
		for _, value := range setting.values {
			for _, dev := range []string{"all", "default", "lo", "up0", a.Host.Name, b.Host.Name} {
				if strings.HasSuffix(setting.name, "addr_gen_mode") && dev != "default" { // takes link-local addresses away: its owner's affair
					continue
				}
				node.Sysctl(t, fmt.Sprintf(setting.name, dev), value)
			}
			moreRounds(t, rounds, 1)
			for _, s := range flows {
				ask(t, s.from, s.call, s.want)
			}
			if t.Failed() {
				t.Fatalf("since %s is %s", setting.name, value)
			}
		}
	}
	stop()
	for _, p := range []*netns.Pod{a, b} {
		if err := p.Check(); err != nil {
			t.Errorf("CHECK of %s: %v", p.ID, err)
		}
	}
}

// N5: forwarding that somebody turns off stops what goes through the stack, and CHECK tells.
// The next ADD turns the node's on again, reconcile that of a pod's veth too.
func TestPrivilegedN5Forwarding(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	outside.Serve(t, 80)
	for _, family := range []string{"ipv4", "ipv6"} {
		node.Sysctl(t, "net/"+family+"/conf/all/forwarding", "0")
	}
	refuse(t, a.NS, call("udp", outside.V4, 80))
	if err := a.Check(); err == nil || !strings.Contains(err.Error(), "forwarding") {
		t.Errorf("CHECK without forwarding: %v", err)
	}
	node.Add(t, netns.PodSpec{Name: "next"})
	works := func(since string) {
		for _, s := range everyWay(c, a) {
			ask(t, s.from, s.call, s.want)
		}
		if err := a.Check(); err != nil {
			t.Errorf("CHECK after %s: %v", since, err)
		}
	}
	works("the next ADD")
	for _, family := range []string{"ipv4", "ipv6"} {
		node.Sysctl(t, "net/"+family+"/conf/"+a.Host.Name+"/forwarding", "0")
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), "forwarding") {
			t.Errorf("CHECK without forwarding on the veth: %v", err)
		}
		said(t, reconcile(t, node), "forwarding")
		works("reconcile")
	}
}

// N3, X1: udev gives the node's side of a veth another MAC address, again and again during
// traffic (MACAddressPolicy=persistent): open flows go on, CHECK tells, and reconcile gives
// the old one back. The uplink gets another one too.
func TestPrivilegedX1MACRewrite(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 100e6, EgressRate: 100e6}})
	outside.Serve(t, 80)
	rounds, stop := keepAsking(t, everyWay(c, a))
	for i := range 5 {
		node.IP(t, fmt.Sprintf("link set %s address 02:00:00:00:77:%02x", a.Host.Name, i))
		moreRounds(t, rounds, 1)
	}
	stop()
	node.IP(t, "link set up0 address 02:00:00:00:78:01") // as well; who knew the old one forgets it
	outside.IP(t, "neigh flush dev br0")
	for _, s := range everyWay(c, a) {
		ask(t, s.from, s.call, s.want)
	}
	if err := a.Check(); err == nil || !strings.Contains(err.Error(), "MAC") {
		t.Errorf("CHECK: want an error about the MAC address, got %v", err)
	}
	said(t, reconcile(t, node), "MAC address", "neighbour entry of "+a.V4.String(), "neighbour entry of "+a.V6.String()) // the kernel's, with the change
	if err := a.Check(); err != nil {
		t.Errorf("CHECK after reconcile: %v", err)
	}
}

// N5: IPv6 that is switched off on our veth, and on again, has taken the pod's route along.
// CHECK tells, reconcile puts it back.
func TestPrivilegedN5DisableIPv6(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	outside.Serve(t, 80)
	for _, values := range []string{"1", "10"} {
		for _, value := range values {
			node.Sysctl(t, "net/ipv6/conf/"+a.Host.Name+"/disable_ipv6", string(value))
		}
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), a.V6.String()) {
			t.Errorf("CHECK since disable_ipv6 was %s: want an error about the route to %s, got %v", values, a.V6, err)
		}
		if repaired := reconcile(t, node); len(repaired) == 0 {
			t.Error("reconcile repaired nothing")
		}
		if err := a.Check(); err != nil {
			t.Errorf("CHECK after reconcile: %v", err)
		}
		for _, s := range everyWay(c, a) {
			ask(t, s.from, s.call, s.want)
		}
		said(t, reconcile(t, node))
	}
}
