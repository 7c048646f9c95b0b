// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// masquerading is the configuration of a pod that leaves the node with its address.
func masquerading(except ...string) map[string]any {
	conf := map[string]any{"ipMasq": true}
	if len(except) > 0 {
		conf["nonMasqueradeCIDRs"] = except
	}
	return conf
}

// F1: outside sees the address of the uplink that the packet leaves by; ranges that are
// excepted, pods of this node and of others, and the node itself see the pod's. A pod
// without ipMasq beside it is seen as it is.
func TestPrivilegedF1Masquerade(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2, Uplinks: 2})
	node, outside, far := c.Nodes[0], c.Outside(), c.Peers[1]
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: masquerading("10.244.0.0/16", "fd00:244::/32", "10.30.0.0/16", "fd00:30::/64")})
	plain, _ := serve(t, node, netns.PodSpec{Name: "plain"})
	remote, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "remote", Conf: masquerading("10.244.0.0/16", "fd00:244::/32")})
	outside.IP(t, "addr add 10.30.0.1/32 dev lo", "addr add fd00:30::1/128 dev lo nodad")
	node.IP(t, "route add 10.30.0.0/16 via 10.10.0.1", "route add fd00:30::/64 via fd00:10::1")
	excepted := map[int]netip.Addr{4: netip.MustParseAddr("10.30.0.1"), 6: netip.MustParseAddr("fd00:30::1")}
	for _, ns := range []*netns.NS{outside.NS, far.NS, node.NS} {
		ns.Serve(t, 80)
	}
	for _, tc := range []struct {
		name     string
		from     *netns.Pod
		to       *netns.NS
		at, seen func(int) netip.Addr
	}{
		{"Uplink0", a, outside.NS, outside.Addr, node.Uplinks[0].Addr},
		{"Uplink1", a, far.NS, far.Addr, node.Uplinks[1].Addr},
		{"OtherNode", remote, outside.NS, outside.Addr, c.Nodes[1].Uplinks[0].Addr},
		{"Excepted", a, outside.NS, at(excepted), a.Addr},
		{"Pod", a, plain.NS, plain.Addr, a.Addr},
		{"RemotePod", a, remote.NS, remote.Addr, a.Addr},
		{"Node", a, node.NS, node.Uplinks[0].Addr, a.Addr},
		{"WithoutMasquerade", plain, outside.NS, outside.Addr, plain.Addr},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, protos, func(t *testing.T, proto string, v int) {
				ask(t, tc.from.NS, call(proto, tc.at(v), 80), want{server: tc.to.Name, remote: only(tc.seen(v))})
			})
			pings(t, tc.from.NS, tc.at)
		})
	}
	t.Run("FromOutside", func(t *testing.T) { // whose replies keep the pod's address
		each(t, protos, func(t *testing.T, proto string, v int) {
			ask(t, outside.NS, call(proto, a.Addr(v), 80), want{server: "a", remote: only(outside.Addr(v))})
		})
	})
}

// F1: without nonMasqueradeCIDRs, the range of the network's own pods is excepted.
func TestPrivilegedF1DefaultRanges(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: masquerading()})
	outside.Serve(t, 80)
	// A machine outside that has an address of the pods' range.
	stray := map[int]netip.Addr{4: netip.MustParseAddr("10.244.0.200"), 6: netip.MustParseAddr("fd00:244::200")}
	outside.IP(t, "addr add 10.244.0.200/32 dev lo", "addr add fd00:244::200/128 dev lo nodad")
	// The kernel receives for an IPv6 address when a work item of its own has run.
	if err := netns.Poll(func() error {
		out, err := outside.Run("", "ip", "-6", "route", "get", "fd00:244::200")
		if err == nil && !strings.HasPrefix(out, "local ") {
			err = fmt.Errorf("not local yet: %s", out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	node.IP(t, "route add 10.244.0.200 via 10.10.0.1", "route add fd00:244::200 via fd00:10::1")
	each(t, protos, func(t *testing.T, proto string, v int) {
		ask(t, a.NS, call(proto, outside.Addr(v), 80), want{server: outside.Name, remote: only(node.Uplinks[0].Addr(v))})
		ask(t, a.NS, call(proto, stray[v], 80), want{server: outside.Name, remote: only(a.Addr(v))})
	})
}

// F1: a masqueraded flow goes on while rules come and go, and what conntrack must see of
// it, it sees: `ct state invalid drop` hits nothing. A pod that takes the port's number
// as a hostPort meanwhile gets none of its packets.
func TestPrivilegedF1BesideNetfilter(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: masquerading()})
	outside.Serve(t, 80)
	each(t, small, func(t *testing.T, proto string, v int) {
		w := want{server: outside.Name, remote: only(node.Uplinks[0].Addr(v))}
		f, err := a.Open(call(proto, outside.Addr(v), 80))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, rules := range []string{"", dropInvalid, "flush ruleset", dropInvalid, "flush ruleset"} {
			if rules != "" {
				node.MustRun(t, rules, "nft", "-f", "-")
			}
			r, err := f.Ask()
			if err == nil {
				err = w.check(r)
			}
			if err != nil {
				t.Errorf("open flow after %q: %v", rules, err)
			}
			ask(t, a.NS, call(proto, outside.Addr(v), 80), w)
		}
	})
}

// F1: the ranges are those that the network's last ADD named; a flow that was masqueraded
// before stays so.
func TestPrivilegedF1Changed(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	outside.Serve(t, 80)
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: masquerading("10.99.0.0/16", "fd00:99::/64")})
	kept := map[*netns.Flow]int{}
	for i, step := range []struct {
		except []string
		seen   func(int) netip.Addr
	}{
		{[]string{"10.99.0.0/16", "fd00:99::/64"}, node.Uplinks[0].Addr},
		{[]string{"10.10.0.0/16", "fd00:10::/64"}, a.Addr},
		{[]string{"10.10.0.2/32", "fd00:10::2/128"}, node.Uplinks[0].Addr},
	} {
		node.Add(t, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Conf: masquerading(step.except...)})
		for _, proto := range small {
			for _, v := range families {
				f, err := a.Open(call(proto, outside.Addr(v), 80))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Close)
				if r, err := f.Ask(); err != nil || r.Remote.Addr() != step.seen(v) {
					t.Errorf("with %v, %s: want it seen as %s, got %s (%v)", step.except, f, step.seen(v), r.Remote, err)
				}
				if i == 0 {
					kept[f] = v
				}
			}
		}
		for f, v := range kept {
			if r, err := f.Ask(); err != nil || r.Remote.Addr() != node.Uplinks[0].Addr(v) {
				t.Errorf("with %v, open since before, %s: want it seen as %s, got %s (%v)", step.except, f, node.Uplinks[0].Addr(v), r.Remote, err)
			}
		}
	}
}

// F1: where the node has no address of the family there is nothing to masquerade with:
// the packet does not leave with the pod's, and is counted.
func TestPrivilegedF1NoAddress(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "no_address")
	node, outside := c.Nodes[0], c.Outside()
	outside.Serve(t, 80)
	a := node.Add(t, netns.PodSpec{Name: "a", Conf: masquerading()})
	node.IP(t, "addr flush dev up0 scope global", "route replace default via 10.10.0.1 dev up0 onlink",
		"neigh replace 10.10.0.1 dev up0 lladdr "+devices(t, outside.NS)["br0"].MAC,
		"route replace default via fd00:10::1 dev up0 onlink", "neigh replace fd00:10::1 dev up0 lladdr "+devices(t, outside.NS)["br0"].MAC)
	each(t, small, func(t *testing.T, proto string, v int) {
		before := drops(t, node, "no_address")
		refuse(t, a.NS, call(proto, outside.Addr(v), 80))
		if after := drops(t, node, "no_address"); after == before {
			t.Error("want no_address counted")
		}
	})
}
