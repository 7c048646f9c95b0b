// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	culvert "github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// snapshot is everything that a verb could leave on a node, a line each.
type snapshot map[string]bool

// looks are the commands whose lines are of interest; the first word names the kind.
var looks = []string{
	"ip -br link", "ip -br addr", "ip -4 route show table all", "ip -6 route show table all", "ip neigh show nud permanent", "ip rule", "ip -6 rule",
	"tc qdisc show", "tc filter show dev lo egress", "tc filter show dev up0 ingress", "tc filter show dev up0 egress",
}

var sysctls = []string{
	"net/ipv4/conf/lo/accept_local", "net/ipv4/conf/lo/route_localnet", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/all/route_localnet",
	"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/up0/accept_ra",
}

// passing is what differs between two looks for other reasons.
var passing = regexp.MustCompile(`expires \S+|refcnt \d+|<[A-Z,_]+>|jited|id \d+|tag [0-9a-f]+|\s+$`)

// look takes a snapshot of the node and of namespaces of pods.
func look(tb testing.TB, n *netns.Node, pods ...*netns.NS) snapshot {
	tb.Helper()
	s := snapshot{}
	for _, cmd := range looks {
		for _, line := range lines(n.NS, cmd) {
			s.note("node: "+cmd, line)
		}
	}
	for _, pod := range pods {
		for _, cmd := range append(slices.Clone(looks[:4]), "tc qdisc show") {
			for _, line := range lines(pod, cmd) {
				s.note("pod: "+cmd, line)
			}
		}
	}
	for _, name := range sysctls {
		s.note("sysctl", name+"="+n.GetSysctl(tb, name))
	}
	s.files("pin", n.PinPath)
	s.files("lease", n.DataDir)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[4]; !strings.HasPrefix(at, os.TempDir()) { // another test's
			s.note("mount", at)
		}
	}
	s.rows(tb, n)
	return s
}

func (s snapshot) note(kind, what string) {
	s[kind+": "+strings.Join(strings.Fields(passing.ReplaceAllString(what, " ")), " ")] = true
}

func lines(ns *netns.NS, cmd string) []string {
	out, _ := ns.Run("", strings.Fields(cmd)...) // no such qdisc, no such family: nothing there
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

// files lists what lies under a directory, but for what host-local keeps for good.
func (s snapshot) files(kind, dir string) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
			s.note(kind, strings.TrimPrefix(path, dir))
		}
		return nil
	})
}

// rows are those of the tables that attachments own.
func (s snapshot) rows(tb testing.TB, n *netns.Node) {
	tb.Helper()
	set, err := culvert.Open(filepath.Join(n.PinPath, "v1", "maps"))
	if err != nil {
		return // not loaded to the end
	}
	defer set.Close()
	note(tb, s, "pods", set.Pods.All())
	note(tb, s, "ifaces", set.Ifaces.All())
	note(tb, s, "hostports", set.Hostports.All())
	note(tb, s, "limits", set.Limits.All())
	note(tb, s, "nonmasq", set.Nonmasq.All())
	note(tb, s, "excluded", set.Excluded.All())
	s.addresses(tb, n)
	devices := map[int]bool{}
	for _, line := range lines(n.NS, "ip -o link") {
		var index int
		_, _ = fmt.Sscanf(line, "%d:", &index)
		devices[index] = true
	}
	for c, err := range set.Counters.All() {
		if err != nil {
			tb.Fatal(err)
		}
		if !devices[c.Ifindex] {
			s.note("row counters", fmt.Sprintf("%+v", c))
		}
	}
}

// addresses are those that culvert-ipam says somebody has, and whom it knows. When that was
// is nothing to compare.
func (s snapshot) addresses(tb testing.TB, n *netns.Node) {
	tb.Helper()
	table, err := culvert.OpenAddresses(filepath.Join(n.PinPath, "v1", "maps"))
	if err != nil {
		return // as above
	}
	defer table.Close()
	for l, err := range table.Leases() {
		if err != nil {
			tb.Fatal(err)
		}
		if l.State == culvert.AddressHeld {
			s.note("row addresses", fmt.Sprint(l.Addr, " of ", l.Owner))
		}
	}
	for t, err := range table.Tenants() {
		if err != nil {
			tb.Fatal(err)
		}
		s.note("row addresses", fmt.Sprint(t.Owner, " has ", t.Addrs))
	}
}

func note[T any](tb testing.TB, s snapshot, table string, rows iter.Seq2[T, error]) {
	tb.Helper()
	for row, err := range rows {
		if err != nil {
			tb.Fatal(err)
		}
		s.note("row "+table, fmt.Sprintf("%+v", row))
	}
}

// left is what after has more than before.
func (s snapshot) left(after snapshot) []string {
	var out []string
	for _, line := range slices.Sorted(maps.Keys(after)) {
		if !s[line] {
			out = append(out, "left: "+line)
		}
	}
	return out
}

// missing is what it has less, but for mounts: those of others may go.
func (s snapshot) missing(after snapshot) []string {
	var out []string
	for _, line := range slices.Sorted(maps.Keys(s)) {
		if !after[line] && !strings.HasPrefix(line, "mount: ") {
			out = append(out, "gone: "+line)
		}
	}
	return out
}
