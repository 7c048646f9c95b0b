// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// device is a row of `ip -json link`.
type device struct {
	Index int    `json:"ifindex"`
	Name  string `json:"ifname"`
	MAC   string `json:"address"`
	MTU   int    `json:"mtu"`
}

func devices(t testing.TB, ns *netns.NS) map[string]device {
	t.Helper()
	var rows []device
	out := ns.MustRun(t, "", "ip", "-json", "link", "show")
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatalf("decode links of %s: %v", ns.Name, err)
	}
	byName := map[string]device{}
	for _, d := range rows {
		byName[d.Name] = d
	}
	return byName
}

// tables opens the node's maps; nil before its first ADD.
func tables(t testing.TB, n *netns.Node) *maps.Set {
	t.Helper()
	dir := filepath.Join(n.PinPath, "v1", "maps")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	set, err := maps.Open(dir)
	if err != nil {
		t.Fatalf("open tables of %s: %v", n.Name, err)
	}
	t.Cleanup(func() { _ = set.Close() })
	return set
}

// addressTable opens culvert-ipam's table; nil if there is none.
func addressTable(t testing.TB, n *netns.Node) *maps.Addresses {
	t.Helper()
	table, err := maps.OpenAddresses(filepath.Join(n.PinPath, "v1", "maps"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatalf("open addresses of %s: %v", n.Name, err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

func rows[T any](t testing.TB, all iter.Seq2[T, error]) []T {
	t.Helper()
	got, err := maps.Collect(all)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// drops sums the packets that a node dropped for one reason.
func drops(t testing.TB, n *netns.Node, reason string) (sum uint64) {
	t.Helper()
	for _, c := range rows(t, tables(t, n).Counters.All()) {
		if c.Reason.String() == reason {
			sum += c.Packets
		}
	}
	return sum
}

// checkCounters runs before each DEL, which takes the pod's counters away.
func (c *cluster) checkCounters(t testing.TB, p *netns.Pod) {
	t.Helper()
	c.unexpected(t, p.Node)
}

func (c *cluster) unexpected(t testing.TB, n *netns.Node) {
	t.Helper()
	set := tables(t, n)
	if set == nil {
		return
	}
	for _, row := range rows(t, set.Counters.All()) {
		if row.Packets > 0 && !slices.Contains(c.expected, row.Reason.String()) {
			t.Errorf("%s: %s dropped %d packets on iface %d: %s", n.Name, row.Hook, row.Packets, row.Ifindex, row.Reason)
		}
	}
}

// checkEmpty runs when every pod is gone: no row, device or lease of one is left.
func (c *cluster) checkEmpty(t *testing.T, n *netns.Node) {
	t.Helper()
	set := tables(t, n)
	if set == nil {
		return
	}
	c.unexpected(t, n)
	for _, r := range rows(t, set.Pods.All()) {
		t.Errorf("%s: after DEL: pods has %+v", n.Name, r)
	}
	for _, r := range rows(t, set.Ifaces.All()) {
		t.Errorf("%s: after DEL: ifaces has %+v", n.Name, r)
	}
	for _, r := range rows(t, set.Hostports.All()) {
		t.Errorf("%s: after DEL: hostports has %+v", n.Name, r)
	}
	for _, r := range rows(t, set.Limits.All()) {
		t.Errorf("%s: after DEL: limits has %+v", n.Name, r)
	}
	c.checkDevices(t, n, rows(t, set.Counters.All()))
	checkFlows(t, n, set)
	checkLeases(t, n)
}

// checkDevices: the node has its own devices left, and counters of those alone.
func (c *cluster) checkDevices(t *testing.T, n *netns.Node, counters []maps.Counter) {
	t.Helper()
	own := []string{"lo", netns.Bridge, tunnelDev} // which stay when the last pod goes
	for _, u := range n.Uplinks {
		own = append(own, u.Dev)
	}
	index := map[int]bool{}
	for name, d := range devices(t, n.NS) {
		index[d.Index] = true
		if !slices.Contains(own, name) {
			t.Errorf("%s: after DEL: device %s is left", n.Name, name)
		}
	}
	for _, r := range counters {
		if !index[r.Ifindex] {
			t.Errorf("%s: after DEL: counters has %+v", n.Name, r)
		}
	}
}

func checkFlows(t *testing.T, n *netns.Node, set *maps.Set) {
	t.Helper()
	live, err := set.Pods.Generations()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []*maps.Flows{set.Flows, set.Halfopen} {
		for _, f := range rows(t, table.All()) {
			if live.Flow(f) {
				t.Errorf("%s: after DEL: live flow %+v", n.Name, f)
			}
		}
	}
	ctl := filepath.Join(n.Bin.Dir, "culvertctl")
	if out := n.MustRun(t, "", ctl, "--pin-path", n.PinPath, "flows", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("%s: after DEL: culvertctl flows lists %s", n.Name, out)
	}
}

// checkLeases: host-local holds no address (it keeps a lock and a cursor a range), nor does
// anybody in culvert-ipam's table.
func checkLeases(t *testing.T, n *netns.Node) {
	t.Helper()
	if table := addressTable(t, n); table != nil {
		for _, l := range rows(t, table.Leases()) {
			if l.State == maps.AddressHeld {
				t.Errorf("%s: after DEL: %s is held by %s", n.Name, l.Addr, l.Owner)
			}
		}
		for _, r := range rows(t, table.Tenants()) {
			t.Errorf("%s: after DEL: addresses has %+v", n.Name, r)
		}
	}
	files, _ := filepath.Glob(filepath.Join(n.DataDir, netns.Network, "*.*.*.*"))
	files6, _ := filepath.Glob(filepath.Join(n.DataDir, netns.Network, "*:*"))
	if left := slices.Concat(files, files6); len(left) > 0 {
		t.Errorf("%s: after DEL: host-local holds %v", n.Name, left)
	}
}
