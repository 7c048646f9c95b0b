// SPDX-License-Identifier: Apache-2.0

package maps_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// rows returns the cells of every table row in docs/maps.md whose first cell satisfies
// want, without the backquotes.
func rows(t *testing.T, cells int, want func(first string) bool) [][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/maps.md")
	if err != nil {
		t.Fatal(err)
	}
	var found [][]string
	for line := range strings.Lines(string(page)) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range parts {
			parts[i] = strings.Trim(strings.TrimSpace(parts[i]), "`")
		}
		if len(parts) == cells && want(parts[0]) {
			found = append(found, parts)
		}
	}
	return found
}

func typeName(t btf.Type) string {
	if t == nil {
		return "none"
	}
	return t.TypeName()
}

func TestDocsNameEveryMap(t *testing.T) {
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, r := range rows(t, 6, func(first string) bool { return spec.Maps[first] != nil }) {
		documented[r[0]] = strings.Join(r[1:5], " ")
	}
	for name, m := range spec.Maps {
		if strings.HasPrefix(name, ".") { // the constants of config.h
			continue
		}
		want := fmt.Sprintf("%s %s %s %d", m.Type, typeName(m.Key), typeName(m.Value), m.MaxEntries)
		if documented[name] != want {
			t.Errorf("docs/maps.md says of %s: %q, the object: %q", name, documented[name], want)
		}
	}
}

func TestDocsNameEveryDropReason(t *testing.T) {
	documented := map[string]string{}
	for _, r := range rows(t, 3, func(first string) bool { return first != "reason" }) {
		documented[r[0]] = r[1]
	}
	for reason := bpf.DatapathDropReason(1); reason < bpf.DatapathDropReasonDROP_REASON_MAX; reason++ {
		if got, want := documented[fmt.Sprint(reason)], maps.DropReason(reason).String(); got != want {
			t.Errorf("docs/maps.md names drop reason %d %q, maps.DropReason %q", reason, got, want)
		}
	}
}
