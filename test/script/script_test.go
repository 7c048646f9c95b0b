// SPDX-License-Identifier: Apache-2.0

// Package script runs CNI verbs as scripts over the built binaries: testdata/*.txtar,
// each on a node of its own. What the words of a script mean: command_test.go; the
// rest of the language is that of rogpeppe/go-internal/testscript.
package script

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/culvert-cni/culvert/test/netns"
)

// versions are those of the CNI protocol.
var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// perVersion is the start of the names of scripts that run once for each version.
const perVersion = "version_"

func TestPrivilegedScripts(t *testing.T) {
	netns.RequireRoot(t)
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		if !strings.HasPrefix(filepath.Base(file), perVersion) {
			t.Run("1.1.0", func(t *testing.T) { runScript(t, file, "1.1.0") })
			continue
		}
		for _, version := range versions {
			t.Run(version, func(t *testing.T) { runScript(t, file, version) })
		}
	}
}

// runScript gives a script a node with two uplinks, up0 and up1, and namespaces for four
// pods, by these variables.
func runScript(t *testing.T, file, version string) {
	s := newStage(t)
	testscript.Run(t, testscript.Params{
		Files: []string{file},
		Cmds:  s.commands(),
		Condition: func(cond string) (bool, error) {
			return strings.TrimPrefix(cond, "cni:") == version, nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("VERSION", version)
			env.Setenv("PIN", s.node.PinPath)
			env.Setenv("CNI_PATH", s.node.Bin.Dir+":"+s.node.Bin.Ref)
			env.Setenv("PATH", s.node.Bin.Dir+":"+env.Getenv("PATH"))
			env.Setenv("NODE", s.node.Path())
			for name, pod := range s.pods {
				env.Setenv(name, pod.Path())
			}
			return nil
		},
	})
}
