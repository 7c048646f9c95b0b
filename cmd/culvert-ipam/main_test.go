// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The plugin is executed for every pod: it links neither Kubernetes nor a command line.
func TestSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("no go:", err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, no := range []string{"k8s.io", "github.com/spf13", "github.com/prometheus", "net/http"} {
			if strings.HasPrefix(strings.TrimSpace(dep), no) {
				t.Errorf("links %s", dep)
			}
		}
	}
}
