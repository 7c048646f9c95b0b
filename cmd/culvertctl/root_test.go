// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestErrors(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "pins")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "use table, json or yaml", []string{"pods", "-o", "xml"}},
		{2, "see culvertctl flows --help", []string{"flows", "--al"}},
		{2, "unknown command \"podz\": did you mean pods?", []string{"podz"}},
		{2, "unknown command \"everything\": see culvertctl --help", []string{"everything"}},
		{2, "did you mean set?", []string{"limits", "sett", "4f2a"}},
		{2, "culvertctl pods takes no argument", []string{"pods", "4f2a"}},
		{2, "0 pods are named", []string{"limits", "set"}},
		{2, "not a rate", []string{"limits", "set", "4f2a", "--egress", "5X"}},
		{2, "use auto, tcx or clsact", []string{"reconcile", "--attach", "xdp"}},
		{1, "not on a bpffs", []string{"pods", "--pin-path", elsewhere}},
		{1, elsewhere, []string{"limits", "--pin-path", elsewhere}},
		{1, "faults", []string{"status", "--pin-path", elsewhere}},
	} {
		out, err := run(t, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, output %q", c.args, err, out)
		}
		if exitCode(err) != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, exitCode(err), c.code)
		}
	}
}

// YAML says what JSON says.
func TestPrivilegedViewsAsYAML(t *testing.T) {
	pinPath := filled(t)
	for _, view := range []string{"pods", "addresses", "hostports", "limits", "flows", "remotes", "status", "version"} {
		asJSON, err1 := run(t, view, "--pin-path", pinPath, "-o", "json")
		asYAML, err2 := run(t, view, "--pin-path", pinPath, "-o", "yaml")
		if err1 != nil || err2 != nil || json.Valid([]byte(asYAML)) {
			t.Fatalf("%s: %v, %v: %s", view, err1, err2, asYAML)
		}
		var want, got any
		if err := errors.Join(json.Unmarshal([]byte(asJSON), &want), yaml.Unmarshal([]byte(asYAML), &got)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%v\n%v", view, err, got, want)
		}
	}
}

func TestPrivilegedCompletePod(t *testing.T) {
	pinPath := filled(t)
	const pods = container + "\t10.1.2.3,fd00::3\n10.1.2.3\t0123456789abc\nfd00::3\t0123456789abc\n:4\n"
	for _, c := range []struct {
		want string
		args []string
	}{
		{pods, []string{"limits", "set", ""}},
		{":4\n", []string{"limits", "set", container, ""}},
		{"table\njson\nyaml\n:4\n", []string{"pods", "-o", ""}},
		{"bash\tGenerate the autocompletion script for bash\nfish\tGenerate the autocompletion script for fish\nzsh\tGenerate the autocompletion script for zsh\n:4\n", []string{"completion", ""}},
	} {
		out, err := run(t, append([]string{"__complete", "--pin-path", pinPath}, c.args...)...)
		if out != c.want || err != nil {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
	}
}

// Colours are of whole lines and count for no width; without them nothing is in the text.
func TestColours(t *testing.T) {
	rows := []hostportRow{{HostIP: "*", HostPort: 80, Protocol: "tcp", Alive: true}, {HostIP: "*", HostPort: 8080, Protocol: "tcp"}}
	for colour, want := range map[bool]string{
		true:  "\x1b[1mHOST-IP  PORT  PROTO  POD4  POD6  POD-PORT  CONTAINER  ALIVE\x1b[0m\n*        80    tcp    -     -     0         -          true\n\x1b[33m*        8080  tcp    -     -     0         -          false\x1b[0m\n",
		false: "HOST-IP  PORT  PROTO  POD4  POD6  POD-PORT  CONTAINER  ALIVE\n*        80    tcp    -     -     0         -          true\n*        8080  tcp    -     -     0         -          false\n",
	} {
		var out bytes.Buffer
		a := &app{out: &out, output: "table", colour: colour}
		err := show(a, []string{"HOST-IP", "PORT", "PROTO", "POD4", "POD6", "POD-PORT", "CONTAINER", "ALIVE"}, rows)
		if err != nil || out.String() != want {
			t.Errorf("%v: %v\n%q\n%q", colour, err, out.String(), want)
		}
	}
	if coloured(&bytes.Buffer{}) {
		t.Error("a buffer is no terminal")
	}
}
