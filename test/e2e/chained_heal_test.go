// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// X3, L7: what is lost of a chained pod, by hand or with the pins, reconcile brings back;
// uninstall takes all off, and leaves the veth as its own plugin made it.
func TestPrivilegedX3L7Heal(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Bandwidth: chainedLimits})
		p.Serve(t, 80)
		for name, spoil := range map[string]func(){
			"filter": func() { node.MustRun(t, "", "tc", "filter", "del", "dev", p.Host.Name, "ingress") },
			"shaper": func() { node.MustRun(t, "", "tc", "qdisc", "del", "dev", p.Host.Name, "root") },
			"row":    func() { must(t, tables(t, node).Pods.Delete(p.V4)) },
			"pins":   func() { must(t, os.RemoveAll(filepath.Join(node.PinPath, "v1"))) },
		} {
			spoil()
			ctl := filepath.Join(node.Bin.Dir, "culvertctl")
			out := node.MustRun(t, "", ctl, "--pin-path", node.PinPath, "reconcile")
			if err := p.Check(); err != nil {
				t.Errorf("without the %s, after reconcile: CHECK: %v\n%s", name, err, out)
			}
			for _, v := range families {
				ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].Addr(v), 8080), want{server: "pod", remote: only(c.Outside().Addr(v))})
			}
		}
		if done, err := uninstall(t, node, "--force"); err != nil {
			t.Fatalf("uninstall: %v, %v", err, done)
		}
		untouched(t, p)
		for _, v := range families {
			ask(t, c.Outside().NS, call("tcp", p.Addr(v), 80), want{server: "pod"})
		}
	})
}
