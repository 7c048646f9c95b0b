// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// Any main plugin may call culvert-ipam: bridge does, with culvert behind it.
func TestPrivilegedIPAMBehindBridge(t *testing.T) {
	t.Parallel()
	c := wireChained(t, netns.Layout{}, netns.AfterBridge)
	node := c.Nodes[0]
	conf := map[string]any{"ipam": map[string]any{
		"type": "culvert-ipam", "pinPath": node.PinPath,
		"ranges": []list{{{"subnet": node.PodRange(4).String()}}, {{"subnet": node.PodRange(6).String()}}},
	}}
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: conf, Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: conf})
	each(t, small, func(t *testing.T, proto string, v int) {
		ask(t, b.NS, call(proto, a.Addr(v), 80), want{server: "a"})
		ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "a"})
	})
	if held := leasesOf(t, node); len(held) != 4 || held[a.V4.String()] != "a" || held[b.V6.String()] != "b" {
		t.Errorf("held: %v", held)
	}
	for _, p := range []*netns.Pod{a, b} {
		p.Del(t)
	}
	if held := leasesOf(t, node); len(held) != 0 {
		t.Errorf("held after DEL: %v", held)
	}
}
