// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// X1, X3: what others have put on the veth goes on, and is there when culvert is off again;
// a qdisc that shapes is not replaced.
func TestPrivilegedX3Beside(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "tcx"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if r, tcx := release(t, 6, 6); mode == "tcx" && !tcx {
				t.Skipf("Linux %s has no tcx", r)
			}
			c := wireChained(t, netns.Layout{}, netns.AfterBridge)
			node := c.Nodes[0]
			attach := map[string]any{"attach": mode}
			p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Conf: attach})
			p.Serve(t, 80)
			if err := p.TryDelOurs(); err != nil {
				t.Fatal(err)
			}
			untouched(t, p)
			theirs := hook{node, p.Host.Name, false}.clsact(t, "theirs", 100)
			before := traffic(t, node.NS, p.Host.Name)
			if _, err := p.AddOurs(map[string]any{"runtimeConfig": map[string]any{"portMappings": netns.Both(8080, 80), "bandwidth": chainedLimits}}); err != nil {
				t.Fatal(err)
			}
			seen := theirs.count(t)
			ask(t, c.Outside().NS, call("tcp", p.V4, 80), want{server: "pod"})
			ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "pod"})
			if theirs.count(t) == seen {
				t.Error("the other program sees no packet")
			}
			if err := p.TryDelOurs(); err != nil {
				t.Fatal(err)
			}
			if after := traffic(t, node.NS, p.Host.Name); after != before {
				t.Errorf("after DEL: want\n%s, got\n%s", before, after)
			}
			// An empty qdisc that was there before is somebody's, too.
			node.MustRun(t, "", "tc", "filter", "del", "dev", p.Host.Name, "ingress")
			before = traffic(t, node.NS, p.Host.Name)
			if _, err := p.AddOurs(nil); err != nil {
				t.Fatal(err)
			}
			if err := p.TryDelOurs(); err != nil {
				t.Fatal(err)
			}
			if after := traffic(t, node.NS, p.Host.Name); after != before || !strings.Contains(after, "clsact") {
				t.Errorf("after DEL: want\n%s, got\n%s", before, after)
			}
		})
	}
}

// X1: a qdisc that somebody has put on either end is named, not replaced, by ADD and by a
// change of limits.
func TestPrivilegedX3Queues(t *testing.T) {
	t.Parallel()
	c := wireChained(t, netns.Layout{}, netns.AfterPtP)
	node := c.Nodes[0]
	for name, qdisc := range map[string][]string{
		"tbf": {"tbf", "rate", "10mbit", "burst", "32kb", "latency", "25ms"}, "htb": {"htb"}, "fq_codel": {"fq_codel"},
	} {
		for _, side := range []string{"ingress", "egress"} {
			t.Run(name+"/"+side, func(t *testing.T) {
				p := node.Add(t, netns.PodSpec{Name: "pod" + name + side})
				if err := p.TryDelOurs(); err != nil {
					t.Fatal(err)
				}
				ns, dev := node.NS, p.Host.Name
				if side == "egress" {
					ns, dev = p.NS, p.IfName
				}
				if _, err := ns.Run("", append([]string{"tc", "qdisc", "add", "dev", dev, "root"}, qdisc...)...); err != nil {
					t.Skipf("the kernel lacks it: %v", err)
				}
				before := traffic(t, ns, dev)
				_, err := p.AddOurs(map[string]any{"runtimeConfig": map[string]any{"bandwidth": limit(side, 20e6)}})
				if netns.Code(err) != 7 || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), dev) {
					t.Errorf("want error 7 that names %s and %s, got %v", name, dev, err)
				}
				if after := traffic(t, ns, dev); after != before {
					t.Errorf("want\n%s, got\n%s", before, after)
				}
				if _, err := p.AddOurs(nil); err != nil {
					t.Errorf("ADD without a limit: %v", err)
				}
				ctl := node.Bin.Dir + "/culvertctl"
				if out, err := node.Run("", ctl, "--pin-path", node.PinPath, "limits", "set", p.ID, "--"+side, "20M"); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("limits set: want an error that names %s, got %s, %v", name, out, err)
				}
				if err := p.TryDelOurs(); err != nil {
					t.Errorf("DEL: %v", err)
				}
				if after := traffic(t, ns, dev); after != before {
					t.Errorf("after DEL: want\n%s, got\n%s", before, after)
				}
			})
		}
	}
}

// X3, F5: hostPorts of a chained pod beside kube-proxy's rules, which lead to it too, with
// conntrack that drops what it does not know.
func TestPrivilegedX3F5(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node, outside := c.Nodes[0], c.Outside()
		p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80)})
		p.Serve(t, 80)
		client := node.Add(t, netns.PodSpec{Name: "client"})
		node.MustRun(t, dropInvalid, "nft", "-f", "-")
		netfilters[0].proxy(t, node, []service{{number: 1, nodePort: 30001, endpoint: p.Addr}})
		for range 2 {
			each(t, small, func(t *testing.T, proto string, v int) {
				up := node.Uplinks[0].Addr(v)
				for _, from := range []*netns.NS{outside.NS, client.NS, node.NS} {
					ask(t, from, call(proto, up, 8080), want{server: "pod"})
					ask(t, from, call(proto, up, 30001), want{server: "pod"})
					ask(t, from, call(proto, p.Addr(v), 80), want{server: "pod"})
				}
			})
		}
	})
}
