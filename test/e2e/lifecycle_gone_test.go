// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// L7: network namespaces that went without DEL: whichever verb comes next, nothing of
// their pods stays, and nothing of a pod that lives goes.
func TestPrivilegedL7NamespacesGone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		heal func(c *cluster, live *netns.Pod, gone []*netns.Pod) error
	}{
		{"GC", func(c *cluster, live *netns.Pod, _ []*netns.Pod) error {
			return c.Nodes[0].GC(live.Node.Conf(), live)
		}},
		{"GCWithoutList", func(c *cluster, live *netns.Pod, _ []*netns.Pod) error {
			_, err := c.Nodes[0].Exec("GC", nil, live.Node.Conf())
			return err
		}},
		{"DEL", func(_ *cluster, _ *netns.Pod, gone []*netns.Pod) error {
			return parallel(len(gone), func(i int) error { return gone[i].TryDelBare() })
		}},
		{"ADDAndDEL", func(_ *cluster, live *netns.Pod, gone []*netns.Pod) error {
			// Successors with the same keys and ports, in namespaces of their own.
			return parallel(len(gone), func(i int) error {
				ns, err := netns.TryNew(gone[i].ID)
				if err != nil {
					return err
				}
				defer ns.Close()
				p, err := live.Node.TryAdd(netns.PodSpec{Name: gone[i].ID, NS: ns, Ports: netns.Both(int(gone[i].HostPort), 80)})
				if err != nil {
					return err
				}
				return p.TryDel(nil)
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := wire(t, netns.Layout{})
			node := c.Nodes[0]
			live, _ := serve(t, node, netns.PodSpec{Name: "live", Ports: netns.Both(8080, 80)})
			var gone []*netns.Pod
			for i := range 3 {
				p, err := node.TryAdd(netns.PodSpec{
					Name: fmt.Sprintf("gone%d", i), NS: netns.New(t, "gone"), Ports: netns.Both(8081+i, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e8},
				})
				if err != nil {
					t.Fatal(err)
				}
				gone = append(gone, p)
			}
			for _, p := range gone {
				p.Vanish()
			}
			if err := tc.heal(c, live, gone); err != nil {
				t.Error(err)
			}
			for _, p := range gone {
				waitGone(t, node, p.Host.Name)
			}
			if n := len(rows(t, tables(t, node).Ifaces.All())); n != 1 {
				t.Errorf("rows in ifaces: want that of the pod that lives, got %d", n)
			}
			if err := live.Check(); err != nil {
				t.Errorf("CHECK of the pod that lives: %v", err)
			}
			ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "live"})
			live.Del(t) // wire sees that this was the last one
		})
	}
}

// L8: after a reboot, which takes /run, bpffs and every namespace along, nothing is
// allocated: the first pod gets the first address, and hostPorts are free.
func TestPrivilegedL8Reboot(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	spec := netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80)}
	before := make([]*netns.Pod, 2)
	for i := range before {
		p, srv := serve(t, node, netns.PodSpec{Name: fmt.Sprint("before", i), Ports: netns.Both(8080+i, 80)})
		before[i] = p
		srv.Close()
	}
	for _, p := range before {
		p.Vanish()
		waitGone(t, node, p.Host.Name)
	}
	for _, dir := range []string{filepath.Join(node.PinPath, "v1"), node.DataDir} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := node.Exec("STATUS", nil, node.Conf()); err != nil {
		t.Errorf("STATUS after the reboot: %v", err)
	}
	// The runtime remembers the pods of before and cleans up.
	for _, p := range before {
		if err := p.TryDelBare(); err != nil {
			t.Errorf("DEL of a pod from before: %v", err)
		}
	}
	if err := node.GC(node.Conf()); err != nil {
		t.Errorf("GC after the reboot: %v", err)
	}
	p, _ := serve(t, node, spec)
	if p.V4 != before[0].V4 || p.V6 != before[0].V6 {
		t.Errorf("the first pod has %s and %s, before the reboot it was %s and %s", p.V4, p.V6, before[0].V4, before[0].V6)
	}
	each(t, small, func(t *testing.T, proto string, v int) {
		ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "pod"})
	})
}
