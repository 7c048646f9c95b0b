// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// S4: a release with another layout of the tables takes a node over, and the older one takes
// it back, by an upgrade or by any verb that writes. Flows that are there go on: those of
// hostPorts from everywhere and masqueraded ones. Every row is as it was.
func TestPrivilegedS4UpgradeLayout(t *testing.T) {
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	old, other := node.Bin, variant(t, node, "layout")
	limit := &netns.Bandwidth{IngressRate: 500e6, IngressBurst: 100e6, EgressRate: 500e6, EgressBurst: 100e6}
	server, _ := serve(t, node, netns.PodSpec{Name: "server", Bandwidth: limit, Ports: append(netns.Both(8080, 80), netns.Both(8081, 81)...)})
	echoTCP(t, server.NS, 81)
	echoUDP(t, server.NS, 81)
	echoTCP(t, outside.NS, 9001)
	echoUDP(t, outside.NS, 9001)
	caller := node.Add(t, netns.PodSpec{Name: "caller", Conf: map[string]any{"ipMasq": true}})
	every := 10 * time.Millisecond
	if netns.Emulated() {
		every = 200 * time.Millisecond
	}
	tr := newOngoing()
	ways := hostPortWays(c, caller, 8081)
	for _, v := range families {
		ways = append(ways, way{fmt.Sprintf("masqueraded, IPv%d", v), caller.NS, netip.AddrPortFrom(outside.Addr(v), 9001)})
	}
	for _, w := range ways {
		tr.stream(t, w)
		tr.datagrams(t, w, every)
	}
	if err := netns.Poll(func() error {
		if tr.questions.Load() < 200 || tr.sent() < 50 {
			return errors.New("traffic has not begun")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows := views(t, node, old)

	if u := upgrade(t, node, other, "--dry-run"); u.Layout != 1 || !u.Needed {
		t.Errorf("dry run: %+v", u)
	}
	if u := upgrade(t, node, other); u.Layout != 1 || u.Before == "" || u.Before == u.After || len(u.Did) != 2 {
		t.Errorf("forward: %+v", u)
	}
	layoutIs(t, node, "v2")
	compareViews(t, "forward", views(t, node, other), rows)
	// The older one's verbs that change nothing say what is the matter, or nothing.
	if _, err := node.Exec("STATUS", nil, node.Conf()); err != nil {
		t.Errorf("STATUS of the older one: %v", err)
	}
	if err := server.Check(); netns.Code(err) != 103 {
		t.Errorf("CHECK of the older one: %v, want error 103", err)
	}
	if _, err := node.Run("", filepath.Join(old.Dir, "culvertctl"), "--pin-path", node.PinPath, "pods"); err == nil {
		t.Error("the older one shows pods")
	}
	node.Bin = other
	if err := server.Check(); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	late := node.Add(t, netns.PodSpec{Name: "late", Ports: netns.Both(8090, 80)})
	late.Serve(t, 80)
	ask(t, outside.NS, call("tcp", node.Uplinks[0].V4, 8090), want{server: "late"})

	node.Bin = old
	late.Del(t) // a DEL has to find the rows of another layout
	layoutIs(t, node, "v1")
	compareViews(t, "back by DEL", views(t, node, old), rows)
	upgrade(t, node, other)
	upgrade(t, node, old)
	layoutIs(t, node, "v1")
	compareViews(t, "and once more", views(t, node, old), rows)
	if err := server.Check(); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	resets, lost := tr.end(t)
	t.Logf("layout: migrations 4, streams 8, resets %d, datagrams %d, lost %d", resets, tr.sent(), lost)
}

// layoutIs checks that one directory is left.
func layoutIs(t *testing.T, n *netns.Node, dir string) {
	t.Helper()
	entries, err := os.ReadDir(n.PinPath)
	if err != nil || len(entries) != 1 || entries[0].Name() != dir {
		t.Errorf("under the pinPath there are %v (%v), want %s alone", entries, err, dir)
	}
}

// views is what culvertctl shows of the rows that verbs write.
func views(t *testing.T, n *netns.Node, b *netns.Binaries) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, view := range []string{"pods", "hostports", "limits --interval 0", "status"} {
		argv := append([]string{filepath.Join(b.Dir, "culvertctl"), "--pin-path", n.PinPath, "-o", "json"}, strings.Fields(view)...)
		out := n.MustRun(t, "", argv...)
		var v any
		if err := json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&v); err != nil {
			t.Fatal(err)
		}
		if status, ok := v.(map[string]any); ok && view == "status" {
			delete(status, "build")
			counts := status["counts"].(map[string]any)
			for _, by := range []string{"flows", "halfopen", "fragments", "counters"} { // packets write them
				delete(counts, by)
			}
		}
		all[view] = v
	}
	return all
}

func compareViews(t *testing.T, when string, got, want map[string]any) {
	t.Helper()
	for view := range want {
		if !reflect.DeepEqual(got[view], want[view]) {
			t.Errorf("%s: %s shows %v, want %v", when, view, got[view], want[view])
		}
	}
}
