// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// B5: a tunnel that the pod makes has what leaves it cut once, behind the limit: the inner
// headers of each piece count too, also where they are most of it.
func TestPrivilegedB5Tunnel(t *testing.T) {
	netns.RequireRoot(t)
	const rate = 10e6
	c := wire(t, netns.Layout{}, "egress_limit")
	node, outside := c.Nodes[0], c.Outside()
	node.IP(t, "link set up0 gso_max_segs 1") // its counters are a wire's
	p := node.Add(t, netns.PodSpec{Name: "p", Bandwidth: &netns.Bandwidth{EgressRate: rate}})
	for _, end := range []struct {
		ns        *netns.NS
		peer      netip.Addr
		dev, addr string
	}{{p.NS, outside.V4, p.IfName, "10.99.0.1"}, {outside.NS, p.V4, "br0", "10.99.0.2"}} {
		if _, err := end.ns.Run("", "ip", "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "4789", "remote", end.peer.String(), "dev", end.dev); err != nil {
			t.Skipf("the kernel has no vxlan: %v", err)
		}
		end.ns.IP(t, "link set vx0 up", "addr add "+end.addr+"/24 dev vx0")
	}
	outside.MustRun(t, quiet, "nft", "-f", "-")
	to := netip.MustParseAddr("10.99.0.2")
	for _, shaped := range []bool{true, false} {
		for _, mss := range []int{1400, 100} {
			t.Run(fmt.Sprintf("shaper=%v/%d", shaped, mss), func(t *testing.T) {
				if !shaped {
					_, _ = p.Run("", "tc", "qdisc", "del", "dev", p.IfName, "root") // may be gone
				}
				outside.IP(t, fmt.Sprintf("route replace 10.99.0.0/24 dev vx0 src 10.99.0.2 advmss %d", mss))
				seen := watch(func() uint64 { return transmitted(t, node.NS, "up0") })
				r, err := netns.Stream{Proto: "tcp", From: p.NS, To: outside.NS, Dst: to, Flows: 8}.Start()
				if err != nil {
					t.Fatal(err)
				}
				a := &attacker{T: t}
				s := a.launch(func(a *attacker) []func() error {
					return []func() error{a.segmenter(p.NS, to, mss, min(60000/mss, 64)), a.segmenter(p.NS, to, 1, 64)}
				})
				<-time.After(escapeWindow + 150*time.Millisecond)
				a.end(s)
				r.Stop()
				got, err := seen.most(escapeWindow)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%.3f Mbit/s", got/1e6)
				if share := got / rate; share > highest || share < 0.02 {
					t.Errorf("want 0.02-%.2f of %d Mbit/s, got %.3f Mbit/s", highest, int(rate/1e6), got/1e6)
				}
			})
		}
	}
}
