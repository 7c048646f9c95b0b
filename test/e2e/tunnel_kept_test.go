// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/test/netns"
)

// detachTunnel takes the programs off as who deletes pins and filters of others does.
func detachTunnel(t *testing.T, n *netns.Node) {
	t.Helper()
	pins, err := filepath.Glob(filepath.Join(n.PinPath, "v1", "links", "tunnel_*"))
	if err != nil || len(pins) != 2 {
		t.Fatalf("links of the tunnel: %v, %v", pins, err)
	}
	for _, pin := range pins {
		if l, err := link.LoadPinnedLink(pin, nil); err == nil { // else the mark of a filter
			if err := l.Detach(); err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
		if err := os.Remove(pin); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = n.Run("", "tc", "qdisc", "del", "dev", tunnelDev, "clsact")
}

// The tunnel needs nobody who watches it: other programs take the place of those there without a
// connection noticing, reconcile puts back what was taken off, status says so before, and
// uninstall leaves nothing of it.
func TestPrivilegedTunnelKept(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, allOverV4)
	node := m.Nodes[0]
	a := node.Add(t, netns.PodSpec{Name: "a"})
	b, _ := serve(t, m.Nodes[1], netns.PodSpec{Name: "b"})
	w := want{server: "b", remote: only(a.Addr(4))}
	f, err := a.Open(call("tcp", b.Addr(4), 80))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	goesOn := func(after string) {
		t.Helper()
		r, err := f.Ask()
		if err == nil {
			err = w.check(r)
		}
		if err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	goesOn("nothing")
	before := pinned(t, node, "to_tunnel")
	otherBuild(t, node)
	node.Add(t, netns.PodSpec{Name: "c"}).Del(t)
	if pinned(t, node, "to_tunnel") == before {
		t.Error("the programs were not replaced")
	}
	goesOn("an upgrade")
	said(t, reconcile(t, node))
	detachTunnel(t, node)
	refuse(t, a.NS, call("udp", b.Addr(4), 80))
	ctl := filepath.Join(node.Bin.Dir, "culvertctl")
	if out, _ := node.Run("", ctl, "--pin-path", node.PinPath, "status"); !strings.Contains(out, "the tunnel "+tunnelDev+" carries not all programs") {
		t.Errorf("status says %s", out)
	}
	said(t, reconcile(t, node), "attached the programs to the tunnel "+tunnelDev)
	goesOn("a reconcile")
	out := node.MustRun(t, "", ctl, "--pin-path", node.PinPath, "remotes")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join([]string{m.Nodes[1].PodRange(4).String(), "tunnel", m.Nodes[1].Uplinks[0].V4.String(), tunnelDev}, " ")) {
		t.Errorf("remotes says %s", out)
	}
	b.Del(t)
	if did, err := uninstall(t, m.Nodes[1]); err != nil || !strings.Contains(strings.Join(did, "\n"), "delete 4 routes to other nodes' pods\ndelete the tunnel "+tunnelDev) {
		t.Errorf("uninstall: %q, %v", did, err)
	}
	for _, argv := range [][]string{{"ip", "-4", "route", "show", "proto", "68"}, {"ip", "-6", "route", "show", "proto", "68"}, {"ip", "-br", "link", "show", "type", "vxlan"}} {
		if out := m.Nodes[1].MustRun(t, "", argv...); out != "" {
			t.Errorf("uninstall left: %s", out)
		}
	}
}
