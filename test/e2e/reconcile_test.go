// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// reconcile runs `culvertctl reconcile` and gives what it repaired.
func reconcile(t *testing.T, n *netns.Node, args ...string) []string {
	t.Helper()
	argv := append([]string{filepath.Join(n.Bin.Dir, "culvertctl"), "--pin-path", n.PinPath, "reconcile", "-o", "json"}, args...)
	out, err := n.Run("", argv...)
	var view struct{ Repaired, Failed []string }
	if jsonErr := json.Unmarshal([]byte(out), &view); err != nil || jsonErr != nil || len(view.Failed) > 0 {
		t.Fatalf("reconcile: %v, %v: %s", err, jsonErr, out)
	}
	return view.Repaired
}

// said fails unless each of parts is in a line, and there are no other lines.
func said(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	if len(lines) != len(parts) {
		t.Errorf("repaired: want %d things, got %q", len(parts), lines)
	}
	for _, part := range parts {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) }) {
			t.Errorf("repaired: want %q, got %q", part, lines)
		}
	}
}

// healing is a node with two pods whose pins are taken away.
type healing struct {
	*cluster
	node *netns.Node
	conf map[string]any
	a, b *netns.Pod
}

func heal(t *testing.T, mode string) *healing {
	t.Helper()
	h := &healing{cluster: wire(t, netns.Layout{}), conf: map[string]any{"attach": mode, "ipMasq": true}}
	h.node = h.Nodes[0]
	limit := &netns.Bandwidth{IngressRate: 2e7, EgressRate: 1e7}
	h.a, _ = serve(t, h.node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Bandwidth: limit, Conf: h.conf})
	h.b, _ = serve(t, h.node, netns.PodSpec{Name: "b", Conf: h.conf})
	h.Outside().Serve(t, 80)
	return h
}

// lose deletes the pins by hand. What runs is not told.
func (h *healing) lose(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(h.node.PinPath, "v1")); err != nil {
		t.Fatal(err)
	}
}

// works tries every way to the pods; ports says whether hostPorts have to work.
func (h *healing) works(t *testing.T, ports bool) {
	t.Helper()
	for _, proto := range small {
		for _, v := range families {
			up := h.node.Uplinks[0].Addr(v)
			if ports {
				ask(t, h.Outside().NS, call(proto, up, 8080), want{server: "a", remote: only(h.Outside().Addr(v))})
				ask(t, h.b.NS, call(proto, up, 8080), want{server: "a"})
				ask(t, h.node.NS, call(proto, loopback[v], 8080), want{server: "a"})
			}
			ask(t, h.Outside().NS, call(proto, h.a.Addr(v), 80), want{server: "a"})
			ask(t, h.a.NS, call(proto, h.b.Addr(v), 80), want{server: "b"})
			ask(t, h.a.NS, call(proto, h.Outside().Addr(v), 80), want{server: h.Outside().Name, remote: only(up)})
		}
	}
}

// rows are the tables that have to come back as they were. Limits without their clocks.
func (h *healing) rows(t *testing.T) string {
	t.Helper()
	set := tables(t, h.node)
	var lines []string
	lines = append(lines, dump(t, set.Ifaces.All())...)
	lines = append(lines, dump(t, set.Pods.All())...)
	lines = append(lines, dump(t, set.Hostports.All())...)
	lines = append(lines, dump(t, set.Limits.All())...)
	lines = append(lines, dump(t, set.Nonmasq.All())...)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func dump[T any](t *testing.T, rows func(func(T, error) bool)) (lines []string) {
	t.Helper()
	list, err := maps.Collect(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		lines = append(lines, fmt.Sprintf("%T %+v", r, r))
	}
	return lines
}

// L7: pins that are gone come back with every row, by whichever verb is the next, and a
// connection that was open goes on.
func TestPrivilegedL7LostPins(t *testing.T) {
	t.Parallel()
	verbs := map[string]func(*testing.T, *healing){
		"Reconcile": func(t *testing.T, h *healing) {
			lines := reconcile(t, h.node)
			parts := []string{"tables again", "loaded", "not in /etc/cni/net.d"}
			if _, tcx := release(t, 6, 6); tcx { // filters outlive their pins
				parts = append(parts, "uplink up0", "program for the node's own")
			}
			for _, part := range parts {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) }) {
					t.Errorf("repaired: want %q, got %q", part, lines)
				}
			}
			said(t, reconcile(t, h.node))
		},
		"ADD": func(t *testing.T, h *healing) {
			h.node.Add(t, netns.PodSpec{Name: "c", Ports: netns.Both(8081, 80), Conf: h.conf}).Del(t)
		},
		"GC": func(t *testing.T, h *healing) {
			if _, err := h.node.Exec("GC", nil, h.node.Conf()); err != nil {
				t.Errorf("GC: %v", err)
			}
		},
	}
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := heal(t, "auto")
			f, err := h.Outside().Open(call("tcp", h.node.Uplinks[0].V4, 8080))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Ask(); err != nil {
				t.Fatal(err)
			}
			before := h.rows(t)
			// Whatever TCP has yet to say (a late acknowledgement, a repetition) waits: without
			// programs on the uplink the node would answer it with a reset.
			h.Outside().MustRun(t, "table inet hush { chain output { type filter hook output priority 0; tcp dport 8080 drop; }; }", "nft", "-f", "-")
			h.lose(t)
			verb(t, h)
			h.Outside().MustRun(t, "", "nft", "delete", "table", "inet", "hush")
			if after := h.rows(t); after != before {
				t.Errorf("rows: want\n%s\ngot\n%s", before, after)
			}
			if r, err := f.Ask(); err != nil || r.Server != "a" {
				t.Errorf("open connection: %q, %v", r.Server, err)
			}
			h.works(t, true)
			for _, p := range []*netns.Pod{h.a, h.b} {
				if err := p.Check(); err != nil {
					t.Errorf("CHECK %s: %v", p.ID, err)
				}
			}
		})
	}
}

// L7: where no program outlives the pins ("attach": "tcx"), the rows of pods that live are
// made of their devices; hostPorts come back with the pod's next start, and reconcile says so.
func TestPrivilegedL7LostPinsTCX(t *testing.T) {
	t.Parallel()
	if r, tcx := release(t, 6, 6); !tcx {
		t.Skipf("kernel %s has no tcx", r)
	}
	h := heal(t, "tcx")
	limits := dump(t, tables(t, h.node).Limits.All())
	h.lose(t)
	lines := reconcile(t, h.node, "--attach", "tcx")
	for _, part := range []string{"rows of container a, interface eth0, network e2e from its device", "rows of container b", "uplink up0"} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) }) {
			t.Errorf("repaired: want %q, got %q", part, lines)
		}
	}
	h.works(t, false)
	if now := dump(t, tables(t, h.node).Limits.All()); !sameLines(limits, now) {
		t.Errorf("limits: want %q, got %q", limits, now)
	}
	said(t, reconcile(t, h.node, "--attach", "tcx"))
	h.node.Add(t, netns.PodSpec{Name: "c", Conf: h.conf}).Del(t) // brings the network's ranges
	if err := h.b.Check(); err != nil {
		t.Errorf("CHECK b: %v", err)
	}
}

func sameLines(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
