// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// F2: the source port outside sees is none of the host's ephemeral range, of those that
// are reserved, or of a hostPort, and not one of the pool goes to two at once.
func TestPrivilegedF2Numbers(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	outside.Serve(t, 80)
	node.Sysctl(t, "net/ipv4/ip_local_port_range", "24000 60999")
	node.Sysctl(t, "net/ipv4/ip_local_reserved_ports", "20000-20999,63000-65535")
	taken := map[uint16]bool{}
	var mapped []netns.PortMapping
	for port := 61000; port < 61500; port++ {
		mapped = append(mapped, netns.Both(port, 80)...)
	}
	node.Add(t, netns.PodSpec{Name: "mapped", Ports: mapped})
	a := node.Add(t, netns.PodSpec{Name: "a", Conf: masquerading()})
	for _, proto := range small {
		for _, v := range families {
			clear(taken)
			for i := range 150 {
				f, err := a.Open(call(proto, outside.Addr(v), 80))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Reset)
				r, err := f.Ask()
				p := r.Remote.Port()
				switch {
				case err != nil:
					t.Fatal(err)
				case (p < 21000 || p >= 24000) && (p < 61500 || p >= 63000):
					t.Errorf("%s/%d, flow %d: source port %d is not free for this", proto, v, i, p)
				case taken[p]:
					t.Errorf("%s/%d, flow %d: source port %d is another flow's", proto, v, i, p)
				}
				taken[p] = true
			}
		}
	}
	low, high, _ := strings.Cut(node.GetSysctl(t, "net/ipv4/ip_local_port_range"), "\t")
	if l, _ := strconv.Atoi(low); l != 24000 {
		t.Errorf("ip_local_port_range: want it untouched, got %s-%s", low, high)
	}
}

// F2: numbers that somebody on the host has are passed over even where they lie in the
// pool: hostPorts, sockets that are connected, bound or listening, connections in
// TIME_WAIT. What is left goes to one flow; the next one to the same address is dropped
// by name, the flows that are open go on, and so do flows to another address.
func TestPrivilegedF2Exhausted(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Uplinks: 2}, "ports_exhausted")
	node, outside, far := c.Nodes[0], c.Outside(), c.Peers[1]
	outside.Serve(t, 80)
	far.Serve(t, 80)
	serve(t, node, netns.PodSpec{Name: "mapped", Ports: netns.Both(61000, 80)})
	a := node.Add(t, netns.PodSpec{Name: "a", Conf: masquerading()})
	b := node.Add(t, netns.PodSpec{Name: "b", Conf: masquerading()})
	setPorts(t, node, maps.PortRange{First: 61000, Last: 61003})
	node.Serve(t, 61001)
	each(t, small, func(t *testing.T, proto string, v int) {
		fromHost := call(proto, outside.Addr(v), 80)
		fromHost.From = netip.AddrPortFrom(node.Uplinks[0].Addr(v), 61002)
		host, err := node.Open(fromHost)
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		if _, err := host.Ask(); err != nil {
			t.Fatal(err)
		}
		if proto == "tcp" {
			host.Close() // TIME_WAIT
		}
		f, err := a.Open(call(proto, outside.Addr(v), 80))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if r, err := f.Ask(); err != nil || r.Remote != netip.AddrPortFrom(node.Uplinks[0].Addr(v), 61003) {
			t.Errorf("the one free port: want 61003, got %s (%v)", r.Remote, err)
		}
		before := drops(t, node, "ports_exhausted")
		refuse(t, b.NS, call(proto, outside.Addr(v), 80))
		if after := drops(t, node, "ports_exhausted"); after == before {
			t.Error("ports_exhausted: want it counted")
		}
		if _, err := f.Ask(); err != nil {
			t.Errorf("the flow that is open: %v", err)
		}
		ask(t, b.NS, call(proto, far.Addr(v), 80), want{server: far.Name, remote: only(node.Uplinks[1].Addr(v))})
		if proto == "udp" {
			if _, err := host.Ask(); err != nil {
				t.Errorf("the host's socket: %v", err)
			}
		}
	})
}

// F2: a connection that the host makes later, with a number that a masqueraded flow to
// the same address has, works, and so does the flow.
func TestPrivilegedF2HostLater(t *testing.T) {
	t.Parallel()
	const number = 61003
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	srv := outside.Serve(t, 80)
	a := node.Add(t, netns.PodSpec{Name: "a", Conf: masquerading()})
	setPorts(t, node, maps.PortRange{First: number, Last: number + 9})
	each(t, small, func(t *testing.T, proto string, v int) {
		up := node.Uplinks[0].Addr(v)
		var flows []*netns.Flow
		for i := range uint16(2) {
			c := call(proto, outside.Addr(v), 80)
			c.From = netip.AddrPortFrom(a.Addr(v), number+i) // the pool's, so it is kept
			f, err := a.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if r, err := f.Ask(); err != nil || r.Remote != netip.AddrPortFrom(up, number+i) {
				t.Fatalf("masqueraded flow: want %s:%d, got %s (%v)", up, number+i, r.Remote, err)
			}
			flows = append(flows, f)
		}
		c := call(proto, outside.Addr(v), 80)
		c.From = netip.AddrPortFrom(up, number)
		host, err := node.Open(c)
		if err != nil {
			t.Fatalf("the host's later connection: %v", err)
		}
		defer host.Close()
		for i := range 3 {
			if r, err := host.Ask(); err != nil || r.Remote.Addr() != up {
				t.Errorf("the host's later connection, request %d: %v", i, err)
			}
			for j, f := range flows {
				answersLate(t, f, srv, fmt.Sprintf("%s-%d-%d", t.Name(), i, j))
			}
		}
	})
}
