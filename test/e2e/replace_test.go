// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// H7: a UDP client that keeps its source port is served, with its next datagram,
// by whoever holds the port then: the host, a pod that appears, the pod that
// replaces it, the host again. With and without conntrack on the node.
func TestPrivilegedH7KeepsPort(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, rules string }{
		{"Plain", ""},
		{"Conntrack", dropInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := wire(t, netns.Layout{})
			node := c.Nodes[0]
			if tc.rules != "" {
				node.MustRun(t, tc.rules, "nft", "-f", "-")
			}
			node.Serve(t, 8080)
			neighbour, _ := serve(t, node, netns.PodSpec{Name: "neighbour"})
			flows := map[string]*netns.Flow{}
			for _, from := range []*netns.NS{c.Outside().NS, neighbour.NS} {
				for _, v := range families {
					flows[fmt.Sprintf("%s/%d", from.Name, v)] = keep(t, from, node.Uplinks[0].Addr(v))
				}
			}
			expect := func(when, server string) {
				t.Helper()
				for from, f := range flows {
					for i := range 2 {
						r, err := f.Ask()
						if err != nil || r.Server != server {
							t.Errorf("%s: datagram %d from %s: want an answer by %s, got %q (%v)", when, i, from, server, r.Server, err)
						}
					}
				}
			}
			expect("before any pod", node.Name)
			// Meanwhile a connection to the host's listener is the host's.
			tcp, err := c.Outside().Open(call("tcp", node.Uplinks[0].V4, 8080))
			if err != nil {
				t.Fatal(err)
			}
			defer tcp.Close()
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
			expect("a pod appeared", "a")
			if r, err := tcp.Ask(); err != nil || r.Server != node.Name {
				t.Errorf("open connection after a pod appeared: want an answer by %s, got %q (%v)", node.Name, r.Server, err)
			}
			a.Del(t)
			expect("the pod is gone", node.Name)
			b, _ := serve(t, node, netns.PodSpec{Name: "b", Ports: netns.Both(8080, 80)})
			expect("another pod", "b")
			b.Del(t)
			serve(t, node, netns.PodSpec{Name: "c", Ports: netns.Both(8080, 80)})
			expect("replaced", "c")
		})
	}
}

// keep opens a UDP socket towards the hostPort.
func keep(t *testing.T, from *netns.NS, to netip.Addr) *netns.Flow {
	t.Helper()
	f, err := from.Open(call("udp", to, 8080))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}
