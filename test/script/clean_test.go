// SPDX-License-Identifier: Apache-2.0

package script

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// clean: nothing of any pod is left on the node: no device, route, sysctl, row, mark or
// address.
func (s *stage) clean(ts *testscript.TestScript, _ bool, _ []string) {
	for _, look := range []struct{ what, out string }{
		{"device", s.ask(ts, "ip", "-o", "link")},
		{"IPv4 route", s.ask(ts, "ip", "route", "show", "table", "all")},
		{"IPv6 route", s.ask(ts, "ip", "-6", "route", "show", "table", "all")},
		{"neighbour", s.ask(ts, "ip", "neigh")},
	} {
		if left := ours.FindString(look.out); left != "" {
			ts.Fatalf("%s left: %s", look.what, left)
		}
	}
	for _, name := range []string{"accept_local", "route_localnet"} {
		if v := strings.TrimSpace(s.ask(ts, "cat", "/proc/sys/net/ipv4/conf/lo/"+name)); v != "0" {
			ts.Fatalf("lo's %s is %s", name, v)
		}
	}
	s.cleanTables(ts)
	addresses, _ := filepath.Glob(ts.MkAbs("ipam/*/[0-9f]*[.:]*[0-9a-f]"))
	if len(addresses) > 0 {
		ts.Fatalf("addresses left: %v", addresses)
	}
}

var ours = regexp.MustCompile(`.*(\bcv[0-9a-f]{12}\b|proto 67).*`)

func (s *stage) cleanTables(ts *testscript.TestScript) {
	if _, err := os.Stat(s.node.PinPath + "/v1/maps"); err != nil {
		return // never loaded
	}
	for _, table := range []string{"pods", "ifaces", "hostports", "limits", "counters"} {
		rows, err := s.read(table)
		ts.Check(err)
		if len(rows) > 0 {
			ts.Fatalf("rows left in %s: %s", table, strings.Join(rows, "; "))
		}
	}
	for _, pattern := range []string{"links/lo_*", "links/pod_*", "sysctls/*"} {
		if left, _ := filepath.Glob(s.node.PinPath + "/v1/" + pattern); len(left) > 0 {
			ts.Fatalf("pins left: %v", left)
		}
	}
}

func (s *stage) ask(ts *testscript.TestScript, argv ...string) string {
	out, err := s.node.Run("", argv...)
	ts.Check(err)
	return out
}
