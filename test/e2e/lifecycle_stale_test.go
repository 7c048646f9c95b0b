// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// L2: an ADD of a key that has remains cleans them, whatever is left of what, and goes on;
// the wire's own check sees that nothing of the first one stays.
func TestPrivilegedL2Remains(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source") // of a pod whose rows are gone
	node := c.Nodes[0]
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, p *netns.Pod) (next *netns.NS) // nil: the same namespace
	}{
		{"Whole", func(*testing.T, *netns.Pod) *netns.NS { return nil }},
		{"OtherNamespace", func(t *testing.T, p *netns.Pod) *netns.NS { return netns.New(t, p.Name) }},
		{"NamespaceGone", func(t *testing.T, p *netns.Pod) *netns.NS {
			p.Vanish()
			return netns.New(t, "NamespaceGone")
		}},
		{"VethGone", func(t *testing.T, p *netns.Pod) *netns.NS { node.IP(t, "link del "+p.Host.Name); return nil }},
		{"RowsGone", func(t *testing.T, p *netns.Pod) *netns.NS { dropRows(t, node, p); return nil }},
		{"IfaceRowLeft", func(t *testing.T, p *netns.Pod) *netns.NS {
			set := tables(t, node)
			if err := errors.Join(set.Pods.Delete(p.V4), set.Pods.Delete(p.V6)); err != nil {
				t.Fatal(err)
			}
			node.IP(t, "link del "+p.Host.Name)
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := netns.PodSpec{Name: tc.name, NS: netns.New(t, tc.name), Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e8, EgressRate: 1e8}}
			first, err := node.TryAdd(spec)
			if err != nil {
				t.Fatal(err)
			}
			if next := tc.spoil(t, first); next != nil {
				spec.NS = next
			}
			p := node.Add(t, spec)
			srv := spec.NS.Serve(t, 80)
			defer srv.Close()
			if n := len(rows(t, tables(t, node).Ifaces.All())); n != 1 {
				t.Errorf("rows in ifaces: want 1, got %d", n)
			}
			if err := p.Check(); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			each(t, small, func(t *testing.T, proto string, v int) {
				ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: tc.name})
				ask(t, c.Outside().NS, call(proto, p.Addr(v), 80), want{server: tc.name})
			})
			p.Del(t)
			c.checkEmpty(t, node)
		})
	}
}

// dropRows takes away every row that says that there is a pod.
func dropRows(t *testing.T, n *netns.Node, p *netns.Pod) {
	t.Helper()
	set := tables(t, n)
	index := devices(t, n.NS)[p.Host.Name].Index
	err := errors.Join(set.Pods.Delete(p.V4), set.Pods.Delete(p.V6), set.Ifaces.Delete(index))
	for _, row := range rows(t, set.Hostports.All()) {
		err = errors.Join(err, set.Hostports.Delete(row.Key()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// L2: what is not ours is an error, and stays: an interface of that name in the pod, a
// device with the host side's name, the interface that another attachment made.
func TestPrivilegedL2Foreign(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	ns := netns.New(t, "pod")
	spec := netns.PodSpec{Name: "pod", NS: ns}
	first, err := node.TryAdd(spec)
	if err != nil {
		t.Fatal(err)
	}
	hostName := first.Host.Name
	if err := first.TryDel(nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, make, remove string
		at                 *netns.NS
		device             string
		code               uint
	}{
		{"InPod", "link add eth0 type bridge", "link del eth0", ns, "eth0", 102},
		{"HostName", "link add " + hostName + " type bridge", "link del " + hostName, node.NS, hostName, 999},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.at.IP(t, tc.make)
			_, err := node.TryAdd(spec)
			if netns.Code(err) != tc.code {
				t.Errorf("ADD: want error %d, got %v", tc.code, err)
			}
			del := node.Unfinished(spec).TryDelBare()
			if _, ok := devices(t, tc.at)[tc.device]; !ok {
				t.Errorf("%s is gone (DEL: %v)", tc.device, del)
			}
			tc.at.IP(t, tc.remove)
			c.checkEmpty(t, node)
		})
	}
	t.Run("OtherAttachment", func(t *testing.T) {
		p, _ := serve(t, node, netns.PodSpec{Name: "pod", NS: ns, Ports: netns.Both(8080, 80)})
		if _, err := node.TryAdd(netns.PodSpec{Name: "other", NS: ns}); netns.Code(err) != 102 {
			t.Errorf("ADD: want error 102, got %v", err)
		}
		if err := node.Unfinished(netns.PodSpec{Name: "other", NS: ns}).TryDelBare(); err != nil {
			t.Errorf("DEL after the error: %v", err)
		}
		if err := p.Check(); err != nil {
			t.Errorf("CHECK of the first: %v", err)
		}
		ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "pod"})
	})
}

// static is a configuration that gives every pod the same addresses.
func static(n *netns.Node, host int) map[string]any {
	v4, v6 := n.PodRange(4), n.PodRange(6)
	a4 := v4.Addr().As4()
	a4[3] = byte(host)
	return map[string]any{"ipam": map[string]any{"type": "static", "addresses": []any{
		map[string]any{"address": fmt.Sprintf("%d.%d.%d.%d/24", a4[0], a4[1], a4[2], a4[3])},
		map[string]any{"address": fmt.Sprintf("%s%x/64", v6.Addr(), host)},
	}}}
}
