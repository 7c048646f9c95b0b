// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// F4: a million SYNs from everywhere to a hostPort leave a thousand connections that
// were idle meanwhile as they were. So does a flood of datagrams, each of which the pod
// answers.
func TestPrivilegedF4Flood(t *testing.T) {
	netns.RequireRoot(t)
	for _, tc := range []struct {
		name   string
		frames int
		header func(from uint16) packet.Transport
	}{
		{"SYN", 1_000_000, func(from uint16) packet.Transport {
			return packet.TCP{Src: from, Dst: 8080, Flags: packet.SYN, Seq: rand.Uint32()}
		}},
		{"UDP", 300_000, func(from uint16) packet.Transport { return packet.UDP{Src: from, Dst: 8080} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := wire(t, netns.Layout{})
			node, outside := c.Nodes[0], c.Outside()
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
			b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: masquerading()})
			outside.Serve(t, 80)
			// The million's answers go to nobody.
			outside.IP(t, "route add blackhole 198.18.0.0/15", "route add blackhole 2001:db8::/32")
			idlers := 1000
			if netns.Emulated() { // SYNs for the table of half-open flows still, with half as many to spare
				tc.frames, idlers = tc.frames/40, 200
			}
			idle := crowd(t, idlers, []crowded{
				{outside.NS, node.Uplinks[0].Addr, 8080, "a"}, {outside.NS, a.Addr, 80, "a"}, {b.NS, node.Uplinks[0].Addr, 8080, "a"},
				{node.NS, node.Uplinks[0].Addr, 8080, "a"}, {b.NS, outside.Addr, 80, outside.Name},
			})
			link := outside.Link(t, "port0")
			base := packet.Packet{DstMAC: mac(t, devices(t, node.NS)["up0"].MAC), SrcMAC: mac(t, devices(t, outside.NS)["br0"].MAC)}
			start := time.Now()
			flood(t, link, base, node.Uplinks[0], tc.frames, tc.header)
			t.Logf("%d frames in %v", tc.frames, time.Since(start))
			for f, server := range idle {
				if r, err := f.Ask(); err != nil || r.Server != server {
					t.Errorf("after the flood: %s: want an answer by %s, got %q (%v)", f, server, r.Server, err)
				}
			}
			for _, v := range families {
				ask(t, outside.NS, call("tcp", node.Uplinks[0].Addr(v), 8080), want{server: "a"})
			}
		})
	}
}

// crowded is where the connections of a crowd begin and end.
type crowded struct {
	from   *netns.NS
	to     func(int) netip.Addr
	port   uint16
	server string
}

// crowd opens n connections, each of which has been answered once, and says who answers.
func crowd(t *testing.T, n int, ways []crowded) map[*netns.Flow]string {
	t.Helper()
	flows := make([]*netns.Flow, n)
	err := parallel(n/10, func(i int) error {
		for j := i * 10; j < i*10+10; j++ {
			w := ways[j%len(ways)]
			f, err := w.from.Open(call("tcp", w.to(families[j/len(ways)%2]), w.port))
			if err != nil {
				return err
			}
			flows[j] = f
			if _, err := f.Ask(); err != nil {
				return fmt.Errorf("from %s: %w", w.from.Name, err)
			}
		}
		return nil
	})
	t.Cleanup(func() {
		for _, f := range flows {
			f.Reset()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	servers := map[*netns.Flow]string{}
	for i, f := range flows {
		servers[f] = ways[i%len(ways)].server
	}
	return servers
}

// flood sends n packets of both families from random sources.
func flood(t *testing.T, link *netns.Link, base packet.Packet, to netns.Uplink, n int, header func(uint16) packet.Transport) {
	t.Helper()
	const batch = 256
	frames := make([][]byte, 0, batch)
	for i := range n {
		p := base.As(header(uint16(1024 + rand.IntN(64512))))
		if i%2 == 0 {
			r := rand.Uint32()
			p.Src, p.Dst = netip.AddrFrom4([4]byte{198, byte(18 + r>>16&1), byte(r >> 8), byte(r)}), to.V4
		} else {
			a := [16]byte{0x20, 0x01, 0x0d, 0xb8}
			for j := range 3 {
				r := rand.Uint32()
				copy(a[4+4*j:], []byte{byte(r >> 24), byte(r >> 16), byte(r >> 8), byte(r)})
			}
			p.Src, p.Dst = netip.AddrFrom16(a), to.V6
		}
		frames = append(frames, p.With([]byte("flood;")).Frame())
		if len(frames) == batch || i == n-1 {
			if err := link.Burst(frames); err != nil {
				t.Fatal(err)
			}
			frames = frames[:0]
		}
	}
}
