// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// L4: a DEL that comes late does no harm to the pod that has the address, the hostPort,
// the interface's name and even the network namespace's path by then.
func TestPrivilegedL4LateDel(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	for _, tc := range []struct {
		name string
		gone func(t *testing.T, a *netns.Pod, s *netns.Server) // how the first one went
	}{
		{"DeletedOnce", func(t *testing.T, a *netns.Pod, _ *netns.Server) { a.Del(t) }},
		{"Vanished", func(_ *testing.T, a *netns.Pod, s *netns.Server) { s.Close(); a.Vanish() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := func(name string) netns.PodSpec {
				return netns.PodSpec{
					Name: name, Ports: netns.Both(8080, 80), Conf: static(node, 50), Bandwidth: &netns.Bandwidth{IngressRate: 1e8, EgressRate: 1e8},
				}
			}
			a, srv := serve(t, node, spec("a"))
			ask(t, c.Outside().NS, call("udp", node.Uplinks[0].V4, 8080), want{server: "a"})
			tc.gone(t, a, srv)
			b, _ := serve(t, node, spec("b"))
			if a.V4 != b.V4 || a.V6 != b.V6 {
				t.Fatalf("addresses: want those of a, %s and %s, got %s and %s", a.V4, a.V6, b.V4, b.V6)
			}
			works := func(when string) {
				t.Helper()
				if err := b.Check(); err != nil {
					t.Errorf("%s: CHECK: %v", when, err)
				}
				each(t, small, func(t *testing.T, proto string, v int) {
					ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "b"})
					ask(t, c.Outside().NS, call(proto, b.Addr(v), 80), want{server: "b"})
				})
			}
			works("before")
			for _, env := range []map[string]string{nil, {"CNI_NETNS": ""}, {"CNI_NETNS": b.Path()}} {
				if err := errors.Join(a.TryDel(env), a.TryDelBare()); err != nil {
					t.Errorf("late DEL: %v", err)
				}
			}
			works("after the late DEL")
			b.Del(t)
			c.checkEmpty(t, node)
		})
	}
}

// L4: the number of a device that is gone may be another's: a late DEL and a GC leave a
// foreign device alone, and a pod's.
func TestPrivilegedL4Ifindex(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.IP(t, "link add probe type bridge")
	next := devices(t, node.NS)["probe"].Index + 1
	node.IP(t, "link del probe")
	a, srv := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	index := devices(t, node.NS)[a.Host.Name].Index
	if index != next {
		t.Fatalf("the kernel gave number %d to a veth, not the next one, %d", index, next)
	}
	srv.Close()
	a.Vanish()
	waitGone(t, node, a.Host.Name)
	node.IP(t, fmt.Sprintf("link add foreign0 index %d type bridge", index))
	if err := a.TryDelBare(); err != nil {
		t.Errorf("late DEL: %v", err)
	}
	if _, ok := devices(t, node.NS)["foreign0"]; !ok {
		t.Error("the late DEL took a foreign device")
	}
	node.IP(t, "link del foreign0")
	// The row of a pod that went long ago, under the number that the next veth gets.
	set := tables(t, node)
	old := maps.Iface{
		Ifindex: index + 1, Generation: 1, HostIfName: "cv0123456789ab", NetnsPath: "/none", MTU: 1500,
		Owner: maps.Owner{Network: netns.Network, Container: "old", IfName: "eth0"},
	}
	if err := errors.Join(set.Ifaces.Put(old), set.Hostports.Claim(maps.Hostport{Port: 8080, Proto: 6, PodPort: 1, Generation: 1, Ifindex: index + 1})); err != nil {
		t.Fatal(err)
	}
	b, _ := serve(t, node, netns.PodSpec{Name: "b", Ports: netns.Both(8080, 80)})
	if got := devices(t, node.NS)[b.Host.Name].Index; got != old.Ifindex {
		t.Fatalf("the kernel gave number %d to a veth, not the next one, %d", got, old.Ifindex)
	}
	late := node.Unfinished(netns.PodSpec{Name: "old", NS: b.NS})
	if err := errors.Join(late.TryDelBare(), node.GC(node.Conf(), b)); err != nil {
		t.Errorf("late DEL: %v", err)
	}
	if err := b.Check(); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "b"})
}

// waitGone waits for a device that goes with its namespace.
func waitGone(t *testing.T, n *netns.Node, name string) {
	t.Helper()
	err := netns.Poll(func() error {
		if _, ok := devices(t, n.NS)[name]; ok {
			return fmt.Errorf("device %s is still there", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// L9: an address that another pod gets at once, with another MAC, is reachable within
// 200 ms of its ADD, from everywhere that just talked to the old one.
func TestPrivilegedL9Reuse(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	neighbour, _ := serve(t, node, netns.PodSpec{Name: "neighbour"})
	from := []*netns.NS{c.Outside().NS, node.NS, neighbour.NS}
	const enough = 200 * time.Millisecond
	var mac string
	for i, name := range []string{"first", "second", "third"} {
		if i > 0 && mac == "" {
			t.Fatal("no MAC")
		}
		best := time.Hour
		for range 3 { // the machine may be busy
			ns := netns.New(t, name)
			ns.Serve(t, 80)
			p := node.Add(t, netns.PodSpec{Name: name, NS: ns, Conf: static(node, 60), Ports: netns.Both(8080, 80)})
			start := time.Now()
			for _, at := range from {
				for _, v := range families {
					reach(t, at, call("udp", p.Addr(v), 80), name)
					reach(t, at, call("udp", node.Uplinks[0].Addr(v), 8080), name)
				}
			}
			best = min(best, time.Since(start))
			if p.Inside.MAC == mac {
				t.Errorf("%s has the MAC of the pod before", name)
			}
			if best < enough || netns.Emulated() {
				mac = p.Inside.MAC
				p.Del(t)
				break
			}
			p.Del(t)
		}
		t.Logf("%s is reached from %d places after %s", name, len(from), best.Round(time.Millisecond))
		if best >= enough && !netns.Emulated() {
			t.Errorf("%s was not reachable within %s, but after %s", name, enough, best)
		}
	}
}

// reach asks anew every 20 ms until it is answered.
func reach(t *testing.T, from *netns.NS, c netns.Call, server string) {
	t.Helper()
	f, err := from.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = netns.Poll(func() error {
		r, err := f.Within(20 * time.Millisecond).Ask()
		if err == nil && r.Server != server {
			err = fmt.Errorf("an answer by %s", r.Server)
		}
		return err
	})
	if err != nil {
		t.Errorf("from %s: %s: %v", from.Name, c, err)
	}
}
