// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestPrivilegedMetrics(t *testing.T) {
	pinPath := dropped(t)
	out, err := run(t, "metrics", "--pin-path", pinPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"culvert_loaded 1",
		"culvert_faults 0",
		"culvert_warnings 2",
		`culvert_build_info{build="0000000000000abc",kernel="` + kernel() + `",version="unknown"} 1`,
		`culvert_table_rows{table="hostports"} 2`,
		`culvert_table_max_rows{table="hostports"} 65536`,
		`culvert_table_max_rows{table="flows"} 98304`,
		`culvert_drop_packets_total{device="veth5",hook="from_pod",reason="source"} 3`,
		`culvert_drop_bytes_total{device="1073741824",hook="from_uplink",reason="loopback"} 500`,
		`culvert_pod_info{addresses="10.1.2.3,fd00::3",container="0123456789abcdef",device="veth5",ifname="eth0",network="net"} 1`,
		`culvert_pod_limit_bytes_per_second{device="veth5",direction="egress"} 1.25e+06`,
	} {
		if !strings.Contains(out, "\n"+line+"\n") {
			t.Errorf("%s is not in\n%s", line, out)
		}
	}
	if strings.Contains(out, `direction="ingress"`) {
		t.Errorf("a limit that was lifted is shown:\n%s", out)
	}
	problems, err := promlint.New(strings.NewReader(out)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
}

// Before the first pod, and where pins cannot be, there is something to say all the same.
func TestPrivilegedMetricsNotLoaded(t *testing.T) {
	for pinPath, want := range map[string]string{
		netns.PinPath(t): "culvert_faults 0\n",
		t.TempDir():      "culvert_faults 1\n",
	} {
		out, err := run(t, "metrics", "--pin-path", pinPath)
		if err != nil || !strings.Contains(out, "\nculvert_loaded 0\n") || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", pinPath, err, out)
		}
	}
}

func TestPrivilegedMetricsFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "culvert.prom")
	for range 2 {
		if out, err := run(t, "metrics", "--pin-path", netns.PinPath(t), "--output-file", file); err != nil || out != "" {
			t.Fatalf("%v: %s", err, out)
		}
	}
	text, err := os.ReadFile(file)
	info, err2 := os.Stat(file)
	if err != nil || err2 != nil || info.Mode() != 0o644 || !strings.Contains(string(text), "culvert_loaded 0\n") {
		t.Errorf("%v, %v, %v:\n%s", err, err2, info.Mode(), text)
	}
	// A rename that fails takes what it wrote along.
	if err := replaceFile(filepath.Join(dir, "absent", "x.prom"), nil); err == nil {
		t.Error("a directory that is not there takes a file")
	}
	if err := os.MkdirAll(filepath.Join(dir, "taken.prom", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(dir, "taken.prom"), nil); err == nil {
		t.Error("a directory is replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}

// docs/metrics.md lists what there is, as the program says it.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile("(?m)^\\| `culvert_.*$").FindAllString(string(page), -1)
	kinds := map[string]string{"1": "counter", "2": "gauge"}
	var want []string
	for _, m := range metrics.Catalogue {
		labels := "-"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		kind := kinds[string(rune('0'+int(m.Kind)))]
		want = append(want, "| `"+m.Name+"` | "+kind+" | "+labels+" | "+m.Help+" |")
	}
	if !slices.Equal(told, want) {
		t.Errorf("docs/metrics.md: want these rows:\n%s", strings.Join(want, "\n"))
	}
	// An alert names metrics that there are.
	for _, name := range regexp.MustCompile(`culvert_[a-z_]+`).FindAllString(string(page), -1) {
		if !slices.ContainsFunc(metrics.Catalogue, func(m metrics.Metric) bool { return m.Name == name }) && name != "culvert_" {
			t.Errorf("docs/metrics.md: %s is no metric", name)
		}
	}
}
