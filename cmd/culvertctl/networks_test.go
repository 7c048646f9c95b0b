// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/loader"
)

func TestReadNetworks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10-a.conflist":   `{"name": "a", "plugins": [{"type": "culvert", "uplinks": ["eth0", "eth1"]}, {"type": "tuning"}]}`,
		"20-b.conf":       `{"name": "b", "type": "culvert", "pinPath": "/sys/fs/bpf/culvert/"}`,
		"30-c.conflist":   `{"name": "c", "plugins": [{"type": "bridge"}, {"type": "culvert"}]}`,
		"40-d.conflist":   `{"name": "d", "plugins": [{"type": "culvert", "pinPath": "/sys/fs/bpf/other"}]}`,
		"50-e.conflist":   `{"name": "e", "plugins": [{"type": "bridge"}]}`,
		"60-f.conflist":   `{"name": "f", "plugins": [{"type": "culvert"`,
		"70-g.conflist.x": `{"name": "g", "plugins": [{"type": "culvert"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]string{"a": {"eth0", "eth1"}, "b": nil, "c": nil}
	if got := readNetworks(dir, "/sys/fs/bpf/culvert"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := readNetworks(filepath.Join(dir, "none"), "/sys/fs/bpf/culvert"); len(got) != 0 {
		t.Errorf("without a directory: %v", got)
	}
}

func TestVersion(t *testing.T) {
	out, err := run(t, "version")
	for _, part := range []string{fmt.Sprintf("schema %d;", loader.Schema), "Linux " + loader.LeastKernel, "CNI 0.1.0", "1.1.0"} {
		if err != nil || !strings.Contains(out, part) {
			t.Errorf("%v: %q lacks %q", err, out, part)
		}
	}
}
