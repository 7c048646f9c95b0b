// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// uninstall runs `culvertctl uninstall` and gives the lines.
func uninstall(t *testing.T, n *netns.Node, args ...string) ([]string, error) {
	t.Helper()
	argv := append([]string{filepath.Join(n.Bin.Dir, "culvertctl"), "--pin-path", n.PinPath, "uninstall", "-o", "json"}, args...)
	out, err := n.Run("", argv...)
	var view struct{ Removed []string }
	if jsonErr := json.Unmarshal([]byte(out), &view); jsonErr != nil {
		t.Fatalf("uninstall: %v: %q", err, out)
	}
	return view.Removed, err
}

// everything is everything of a node that could be ours.
func everything(t *testing.T, n *netns.Node) string {
	t.Helper()
	var s strings.Builder
	for _, argv := range [][]string{
		{"ip", "-o", "link"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"},
		{"tc", "qdisc"}, {"sysctl", "-a", "-r", `conf.(all|default|lo|up[0-9])\.(forwarding|accept_local|route_localnet|rp_filter|accept_ra)`},
	} {
		out := n.MustRun(t, "", argv...)
		// A clsact qdisc may be anybody's: ours stays, empty.
		lines := slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool { return strings.HasPrefix(l, "qdisc clsact ffff: dev lo ") })
		slices.Sort(lines)
		s.WriteString(strings.Join(lines, "\n") + "\n")
	}
	for _, dev := range []string{"up0", "lo"} {
		for _, way := range []string{"ingress", "egress"} {
			s.WriteString(n.MustRun(t, "", "tc", "filter", "show", "dev", dev, way))
		}
	}
	return s.String()
}

// Uninstall takes everything off and nothing else: the node is as before the first ADD but for
// forwarding. While pods live it refuses, and a dry run says what would be done and does nothing.
func TestPrivilegedO3Uninstall(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "clsact"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := netns.Wire(t, netns.Layout{})
			node := c.Nodes[0]
			for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} { // these stay on
				node.Sysctl(t, s, "1")
			}
			node.IP(t, "route del default", "route del default via fd00:10::1") // so that there is an unreachable one
			b := &beside{cluster: &cluster{Net: c}, at: map[*foreign]hook{}}
			b.surround(t, "up0")
			before := everything(t, node)
			conf := map[string]any{"attach": mode, "ipMasq": true}
			for _, name := range []string{"a", "b"} {
				_, err := node.TryAdd(netns.PodSpec{
					Name: name, NS: netns.New(t, name), Ports: netns.Both(map[string]int{"a": 8080, "b": 8081}[name], 80),
					Bandwidth: &netns.Bandwidth{IngressRate: 1e7, EgressRate: 1e7}, Conf: conf,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			with := everything(t, node)
			if _, err := uninstall(t, node); err == nil || !strings.Contains(err.Error(), "2, as a/eth0, b/eth0; stop them, or use --force") {
				t.Errorf("with pods: %v", err)
			}
			would, err := uninstall(t, node, "--dry-run")
			if err != nil || len(would) < 6 {
				t.Errorf("dry run: %q, %v", would, err)
			}
			if now := everything(t, node); now != with {
				t.Errorf("a refusal or a dry run changed something: %s", difference(with, now))
			}
			did, err := uninstall(t, node, "--force")
			if err != nil || !slices.Equal(did, would) {
				t.Errorf("uninstall: %q, %v; the dry run said %q", did, err, would)
			}
			if now := everything(t, node); now != before {
				t.Errorf("left: %s", difference(before, now))
			}
			if _, err := os.Stat(node.PinPath); !os.IsNotExist(err) {
				t.Errorf("%s is there: %v", node.PinPath, err)
			}
			for f, h := range b.at {
				if !slices.Contains(h.programs(t), f.id(t)) {
					t.Errorf("%s is gone", f.name)
				}
			}
			if did, err := uninstall(t, node); err != nil || len(did) > 0 {
				t.Errorf("uninstall twice: %q, %v", did, err)
			}
		})
	}
}

// Uninstall finds what is ours without pins too.
func TestPrivilegedO3UninstallLostPins(t *testing.T) {
	t.Parallel()
	c := netns.Wire(t, netns.Layout{})
	node := c.Nodes[0]
	for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		node.Sysctl(t, s, "1")
	}
	node.IP(t, "route del default via fd00:10::1")
	before := everything(t, node)
	_, err := node.TryAdd(netns.PodSpec{Name: "a", NS: netns.New(t, "a"), Ports: netns.Both(8080, 80), Conf: map[string]any{"attach": "clsact", "hostPorts": map[string]any{"loopback": false}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(node.PinPath, "v1")); err != nil {
		t.Fatal(err)
	}
	if _, err := uninstall(t, node); err == nil {
		t.Error("with a pod: done")
	}
	if _, err := uninstall(t, node, "--force"); err != nil {
		t.Error(err)
	}
	node.Sysctl(t, "net/ipv4/conf/lo/accept_local", "0") // that it was us is not known any more
	node.MustRun(t, "", "sh", "-c", "tc qdisc del dev up0 clsact; tc qdisc del dev lo clsact")
	if now := everything(t, node); now != before {
		t.Errorf("left: %s", difference(before, now))
	}
}

// difference gives the lines that one of two texts has alone.
func difference(a, b string) string {
	var d []string
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, l := range as {
		if !slices.Contains(bs, l) {
			d = append(d, "- "+l)
		}
	}
	for _, l := range bs {
		if !slices.Contains(as, l) {
			d = append(d, "+ "+l)
		}
	}
	return "\n" + strings.Join(d, "\n")
}
