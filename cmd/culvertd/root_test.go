// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptions(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--node-name= --ranges=node", "--node-name is missing"},
		{"--node-name=n --ranges=nodes", `--ranges "nodes"`},
		{"--node-name=n --tunnel=maybe", `--tunnel "maybe"`},
		{"--node-name=n --mtu=1000", "--mtu 1000"},
		{"--node-name=n --tunnel-port=0", "--tunnel-port 0"},
		{"--node-name=n --cluster-cidr=10.0.0.0/8,x", `--cluster-cidr "x"`},
		{"--node-name=n --log-level=loud", `--log-level "loud"`},
		{"--node-name=n --gc-grace=-1s", "--gc-grace -1s"},
		{"--node-name=n --node-grace=0", "--node-grace 0s"},
		{"--node-name=n --kubeconfig=/nowhere", `--kubeconfig "/nowhere"`},
		{"--node-name=n extra", `unknown command "extra"`},
	} {
		root := newRoot(new(bytes.Buffer), new(bytes.Buffer))
		root.SetArgs(strings.Fields(test.args + " --pin-path=" + t.TempDir() + " --listen="))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.args, err, test.want)
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	root := newRoot(&out, new(bytes.Buffer))
	root.SetArgs([]string{"version"})
	if err := root.Execute(); err != nil || !strings.HasPrefix(out.String(), "culvertd unknown, datapath build ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// docs/culvertd.md lists every flag, and no other.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/culvertd.md")
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(new(bytes.Buffer), new(bytes.Buffer))
	install, _, err := root.Find([]string{"install"})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, flags := range []*pflag.FlagSet{root.Flags(), install.Flags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			known["--"+f.Name] = true
			if !strings.Contains(string(text), "| `--"+f.Name+"`") {
				t.Errorf("--%s is not in its table", f.Name)
			}
		})
	}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `--") && !known[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// The DaemonSet gives the flags that there are.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../deploy/daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(new(bytes.Buffer), new(bytes.Buffer))
	seen := 0
	for line := range strings.Lines(string(text)) {
		arg := strings.TrimSpace(line)
		if name, _, ok := strings.Cut(strings.TrimPrefix(arg, "- --"), "="); ok && strings.HasPrefix(arg, "- --") {
			if seen++; root.Flags().Lookup(name) == nil {
				t.Errorf("culvertd has no --%s", name)
			}
		}
	}
	if seen == 0 {
		t.Error("no flags found")
	}
}
