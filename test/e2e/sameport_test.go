// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// H12: two hostPorts onto one container port and direct connections to the pod, at once
// and in turn, from a client that cycles through 1,000 source ports, closing, being
// closed and resetting between: every reply has the address that was called, and
// nothing stalls (a SYN or datagram that gets lost costs a second).
func TestPrivilegedH12SamePort(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2})
	node := c.Nodes[0]
	ports := append(netns.Both(8080, 80), netns.Both(8081, 80)...)
	a := node.Add(t, netns.PodSpec{Name: "a", Ports: ports})
	closing(t, a.NS)
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	remote, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "remote"})
	for _, from := range []struct {
		name   string
		ns     *netns.NS
		at     func(int) netip.Addr
		rounds int
	}{
		{"Outside", c.Outside().NS, c.Outside().Addr, 1100}, {"Pod", b.NS, b.Addr, 300},
		{"RemotePod", remote.NS, remote.Addr, 300}, {"Host", node.NS, node.Uplinks[0].Addr, 300}, {"Itself", a.NS, a.Addr, 300},
	} {
		rounds, most := from.rounds, 3*netns.Patience
		if netns.Emulated() {
			rounds, most = rounds/10, 2*most
		}
		t.Run(from.name, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, v int) {
				k := caller{proto: proto, from: from.at(v), to: clashing(node, a.Addr(v), v), seen: only(from.at(v))}
				if from.ns == a.NS { // by the hostPort it comes from the gateway
					k.seen = append(k.seen, map[int]netip.Addr{4: netip.MustParseAddr("169.254.1.1"), 6: gateway}[v])
				}
				if n, err := k.run(from.ns, most, rounds); err != nil || n < 2*rounds {
					t.Errorf("want no error and %d answers at least, got %d and %v", 2*rounds, n, err)
				}
			})
		})
	}
}

// H12: and at least as many a second as through portmap, measured in turn.
func TestPrivilegedH12Rate(t *testing.T) {
	needsClock(t)
	ports := append(netns.Both(8080, 80), netns.Both(8081, 80)...)
	ours := wire(t, netns.Layout{})
	a := ours.Nodes[0].Add(t, netns.PodSpec{Name: "a", Ports: ports})
	closing(t, a.NS)
	theirs := netns.Wire(t, netns.Layout{})
	b := oraclePod("iptables")(t, theirs.Nodes[0], netns.PodSpec{Name: "b", Ports: ports})
	closing(t, b.NS)
	each(t, small, func(t *testing.T, proto string, v int) {
		us := &caller{proto: proto, from: ours.Outside().Addr(v), to: clashing(ours.Nodes[0], a.Addr(v), v), seen: only(ours.Outside().Addr(v))}
		// The other's stalls are what we are after: they are no failure.
		them := &caller{proto: proto, from: theirs.Outside().Addr(v), to: clashing(theirs.Nodes[0], b.Addr(v), v), lenient: true}
		var told []string
		for range 3 {
			got, peer := 0, 0
			for range 10 { // short turns: whatever else runs here hits both
				n, err := us.run(ours.Outside().NS, 70*time.Millisecond, 0)
				if err != nil {
					t.Fatalf("after %d answers: %v", got+n, err)
				}
				got += n
				n, _ = them.run(theirs.Outside().NS, 70*time.Millisecond, 0)
				peer += n
			}
			told = append(told, fmt.Sprintf("%d:%d", got, peer))
			if got >= peer && got > 0 {
				t.Logf("answers, culvert:portmap %v", told)
				return
			}
		}
		t.Errorf("answers: want as many as through portmap, got %v", told)
	})
}

// clashing are the addresses whose flows from one client port look the same to the pod.
func clashing(n *netns.Node, pod netip.Addr, v int) []netip.AddrPort {
	up := n.Uplinks[0].Addr(v)
	return []netip.AddrPort{netip.AddrPortFrom(up, 8080), netip.AddrPortFrom(up, 8081), netip.AddrPortFrom(pod, 80)}
}
