// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// F1: protocols that have no ports are masqueraded by their addresses, packet after
// packet, and what comes back reaches the pod.
func TestPrivilegedF1OtherProtocol(t *testing.T) {
	t.Parallel()
	const experiment = 253 // RFC 3692
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a := node.Add(t, netns.PodSpec{Name: "a", Conf: masquerading()})
	for _, v := range families {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			network := fmt.Sprintf("ip%d:%d", v, experiment)
			listen := func(ns *netns.NS) net.PacketConn {
				var pc net.PacketConn
				if err := ns.Do(func() (err error) { pc, err = net.ListenPacket(network, ""); return err }); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = pc.Close() })
				return pc
			}
			pod, host := listen(a.NS), listen(outside.NS)
			buf := make([]byte, 64)
			for i := range 4 {
				hop := func(from, to net.PacketConn, addr netip.Addr, seen netip.Addr) {
					t.Helper()
					word := fmt.Sprintf("packet %d", i)
					if _, err := from.WriteTo([]byte(word), &net.IPAddr{IP: addr.AsSlice()}); err != nil {
						t.Fatal(err)
					}
					_ = to.SetReadDeadline(time.Now().Add(netns.Patience))
					n, src, err := to.ReadFrom(buf)
					if err != nil || string(buf[:n]) != word || src.String() != seen.String() {
						t.Fatalf("packet %d: want it from %s, got %q from %v (%v)", i, seen, buf[:n], src, err)
					}
				}
				hop(pod, host, outside.Addr(v), node.Uplinks[0].Addr(v))
				hop(host, pod, node.Uplinks[0].Addr(v), outside.Addr(v))
			}
		})
	}
}

// F6: pods and the host ping one address with one identifier; everybody gets his own
// replies, and outside sees as many callers.
func TestPrivilegedF6Ping(t *testing.T) {
	t.Parallel()
	const id, count = 7, 5
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	callers := []*netns.NS{node.NS}
	for i := range 4 {
		p := node.Add(t, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Conf: masquerading()})
		callers = append(callers, p.NS)
	}
	for _, v := range families {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			var pingers []*netns.Pinger
			for _, ns := range callers {
				p, err := ns.Pinger(outside.Addr(v), id)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				pingers = append(pingers, p)
			}
			for seq := range uint16(count) {
				for i, p := range pingers {
					if err := p.Send(seq, fmt.Appendf(nil, "from %d", i)); err != nil {
						t.Fatal(err)
					}
				}
				for i, p := range pingers {
					if got, err := p.Receive(seq); err != nil || string(got) != fmt.Sprintf("from %d", i) {
						t.Errorf("%s, reply %d: want its own, got %q (%v)", callers[i].Name, seq, got, err)
					}
				}
			}
			for i, p := range pingers {
				if n := p.Strangers(); n > 0 {
					t.Errorf("%s: %d replies of others", callers[i].Name, n)
				}
			}
		})
	}
}
