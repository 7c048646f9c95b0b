// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// invalidEverywhere drops what conntrack calls invalid at every hook that sees it.
const invalidEverywhere = `
table inet strict {
	chain prerouting { type filter hook prerouting priority -150; ct state invalid drop; }
	chain input { type filter hook input priority 0; ct state invalid drop; }
	chain forward { type filter hook forward priority 0; ct state invalid drop; }
	chain output { type filter hook output priority 0; ct state invalid drop; }
	chain postrouting { type filter hook postrouting priority 300; ct state invalid drop; }
}
`

// N5: with `ct state invalid drop` everywhere all goes on: what the fast path carries
// half of, or all of, looks invalid to nobody. Flows that began before the rules too.
func TestPrivilegedN5Invalid(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: masquerading("10.244.0.0/16", "fd00:244::/32")})
	remote, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "remote"})
	outside.Serve(t, 80)
	node.Serve(t, 81)
	up := node.Uplinks[0].Addr
	type way struct {
		from   *netns.NS
		to     func(int) netip.Addr
		port   uint16
		server string
	}
	ways := []way{
		{outside.NS, a.Addr, 80, "a"}, {outside.NS, up, 8080, "a"}, {outside.NS, up, 81, node.Name},
		{b.NS, a.Addr, 80, "a"}, {b.NS, up, 8080, "a"}, {b.NS, up, 81, node.Name}, {b.NS, outside.Addr, 80, outside.Name},
		{a.NS, outside.Addr, 80, outside.Name}, {a.NS, up, 8080, "a"}, {a.NS, remote.Addr, 80, "remote"},
		{node.NS, a.Addr, 80, "a"}, {node.NS, up, 8080, "a"}, {node.NS, at(loopback), 8080, "a"}, {node.NS, outside.Addr, 80, outside.Name},
		{remote.NS, a.Addr, 80, "a"}, {remote.NS, up, 8080, "a"}, {remote.NS, b.Addr, 80, "b"},
	}
	open := map[*netns.Flow]way{}
	for _, w := range ways {
		for _, v := range families {
			for _, proto := range small {
				f, err := w.from.Open(call(proto, w.to(v), w.port))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Close)
				open[f] = w
			}
		}
	}
	for f := range open {
		if _, err := f.Ask(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.Nodes {
		n.MustRun(t, invalidEverywhere, "nft", "-f", "-")
	}
	for range 2 {
		for f, w := range open {
			if r, err := f.Ask(); err != nil || r.Server != w.server {
				t.Errorf("open since before the rules, from %s: %s: want an answer by %s, got %q (%v)", w.from.Name, f, w.server, r.Server, err)
			}
		}
		each(t, protos, func(t *testing.T, proto string, v int) {
			for _, w := range ways {
				if w.from == node.NS && w.port == 8080 && proto == "udp4000" {
					continue // too big for the pod: I2
				}
				ask(t, w.from, call(proto, w.to(v), w.port), want{server: w.server})
			}
		})
	}
}
