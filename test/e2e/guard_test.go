// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// H11: a masqueraded connection had its source port before a pod took that number as a
// hostPort: its replies still reach it, and new callers reach the new pod.
func TestPrivilegedH11MasqueradedFirst(t *testing.T) {
	t.Parallel()
	const number = 20080
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: masquerading()})
	srv := outside.Serve(t, 80)
	setPorts(t, node, maps.PortRange{First: number, Last: number})
	flows := map[string]*netns.Flow{}
	for _, proto := range small {
		for _, v := range families {
			f, err := a.Open(call(proto, outside.Addr(v), 80))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.Close)
			if r, err := f.Ask(); err != nil || r.Remote != netip.AddrPortFrom(node.Uplinks[0].Addr(v), number) {
				t.Fatalf("%s: want it to leave from port %d, got %s (%v)", f, number, r.Remote, err)
			}
			flows[fmt.Sprintf("%s/%d", proto, v)] = f
		}
	}
	serve(t, node, netns.PodSpec{Name: "b", Ports: netns.Both(number, 80)})
	each(t, small, func(t *testing.T, proto string, v int) {
		f := flows[fmt.Sprintf("%s/%d", proto, v)]
		ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), number), want{server: "b"})
		answersLate(t, f, srv, t.Name())
		ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), number), want{server: "b"})
		if r, err := f.Ask(); err != nil || r.Server != outside.Name {
			t.Errorf("%s: want an answer by %s, got %q (%v)", f, outside.Name, r.Server, err)
		}
	})
}

// H11: the host's own sockets, and what netfilter masquerades, may have the number of a
// hostPort for a source port; the replies are theirs. Sockets are bound without being
// connected too, and a server that they called may take its time. Without rules there is
// no conntrack that could tell.
func TestPrivilegedH11Guard(t *testing.T) {
	t.Parallel()
	for _, rules := range []bool{false, true} {
		t.Run(fmt.Sprintf("netfilter=%v", rules), func(t *testing.T) {
			t.Parallel()
			guard(t, rules)
		})
	}
}

func guard(t *testing.T, rules bool) {
	const number = 8080
	c := wire(t, netns.Layout{Uplinks: 2})
	node, outside, far := c.Nodes[0], c.Outside(), c.Peers[1]
	serve(t, node, netns.PodSpec{Name: "holder", Ports: netns.Both(number, 80)})
	plain, _ := serve(t, node, netns.PodSpec{Name: "plain"})
	if rules {
		node.MustRun(t, fmt.Sprintf(`table inet nat { chain postrouting {
			type nat hook postrouting priority srcnat;
			oifname "up0" ip saddr { %s, %s } meta l4proto { tcp, udp } masquerade to :%d
			oifname "up0" ip6 saddr { %s, %s } meta l4proto { tcp, udp } masquerade to :%d
		}; }`, plain.V4, far.V4, number, plain.V6, far.V6, number), "nft", "-f", "-")
	}
	servers := []*netns.Server{outside.Serve(t, 53), outside.Serve(t, 54), outside.Serve(t, 55)}
	each(t, small, func(t *testing.T, proto string, v int) {
		up := node.Uplinks[0].Addr(v)
		for _, from := range []struct {
			ns   *netns.NS
			addr netip.Addr
			port uint16
			srv  *netns.Server // one each: netfilter has one source port for all
		}{{node.NS, up, number, servers[0]}, {plain.NS, plain.Addr(v), 30001, servers[1]}, {far.NS, far.Addr(v), 30001, servers[2]}} {
			if from.ns != node.NS && !rules {
				continue
			}
			t.Run(from.ns.Name, func(t *testing.T) {
				c := call(proto, outside.Addr(v), from.srv.Port)
				c.From = netip.AddrPortFrom(from.addr, from.port)
				f, err := from.ns.Open(c)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Reset()
				r, err := f.Ask()
				if err != nil || r.Remote != netip.AddrPortFrom(up, number) {
					t.Fatalf("%s: want an answer to %s:%d, got one to %s (%v)", f, up, number, r.Remote, err)
				}
				answersLate(t, f, from.srv, t.Name())
				// Others reach the pod meanwhile.
				ask(t, far.NS, call(proto, up, number), want{server: "holder"})
				answersLate(t, f, from.srv, t.Name())
			})
		}
	})
}

// answersLate has the server hold its answer back until the flow is nothing new.
func answersLate(t *testing.T, f *netns.Flow, srv *netns.Server, key string) {
	t.Helper()
	req, err := f.Send(key)
	if err == nil {
		err = srv.Release(key)
	}
	if err == nil {
		_, err = f.Await(req)
	}
	if err != nil {
		t.Errorf("%s, late answer: %v", f, err)
	}
}

// setPorts leaves the node's masquerade these source ports. Do it after ADD, which
// writes what the node has.
func setPorts(t *testing.T, n *netns.Node, ports ...maps.PortRange) {
	t.Helper()
	config := tables(t, n).Config
	row, err := config.Get()
	if err != nil {
		t.Fatal(err)
	}
	row.Ports = ports
	if err := config.Put(row); err != nil {
		t.Fatal(err)
	}
}
