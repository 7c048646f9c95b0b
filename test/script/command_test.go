// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// stage is what one script plays on.
type stage struct {
	node *netns.Node
	pods map[string]*netns.NS
}

func newStage(t *testing.T) *stage {
	s := &stage{node: netns.Wire(t, netns.Layout{Uplinks: 2}).Nodes[0], pods: map[string]*netns.NS{}}
	for _, name := range []string{"POD1", "POD2", "POD3", "POD4"} {
		s.pods[name] = netns.New(t, name)
	}
	return s
}

func (s *stage) commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"cni":    s.cni,
		"node":   s.inNode,
		"pod":    s.inPod,
		"vanish": s.vanish,
		"json":   checkJSON,
		"with":   with,
		"rows":   s.rows,
		"clean":  s.clean,
	}
}

// cni [-p PLUGIN] VERB CONTAINER NETNS CONF [NAME=VALUE...]: run a verb in the node, on
// eth0 unless told otherwise by a variable. Variables in CONF are expanded.
func (s *stage) cni(ts *testscript.TestScript, neg bool, args []string) {
	plugin := "culvert"
	if len(args) > 2 && args[0] == "-p" {
		plugin, args = args[1], args[2:]
	}
	if len(args) < 4 {
		ts.Fatalf("usage: cni [-p PLUGIN] VERB CONTAINER NETNS CONF [NAME=VALUE...]")
	}
	stdin := ts.MkAbs("stdin.json")
	ts.Check(os.WriteFile(stdin, []byte(os.Expand(ts.ReadFile(args[3]), ts.Getenv)), 0o600))
	cmd := []string{"--net=" + s.node.Path(), "env", "CNI_COMMAND=" + args[0], "CNI_CONTAINERID=" + args[1],
		"CNI_NETNS=" + args[2], "CNI_IFNAME=eth0", "CNI_PATH=" + ts.Getenv("CNI_PATH")}
	cmd = append(cmd, args[4:]...)
	cmd = append(cmd, "sh", "-c", `exec "$(PATH=$CNI_PATH command -v "$0")" <"$1"`, plugin, stdin)
	run(ts, neg, "nsenter", cmd...)
	if neg {
		checkError(ts)
	}
}

// checkError holds every failure to the protocol: one error JSON on stdout.
func checkError(ts *testscript.TestScript) {
	var e struct {
		Code         uint
		Msg, Details string
	}
	out := ts.ReadFile("stdout")
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Code == 0 || e.Msg == "" {
		ts.Fatalf("stdout is no CNI error (%v): %s", err, out)
	}
	if strings.Contains(e.Msg, "bug") || strings.Contains(ts.ReadFile("stderr"), "goroutine ") {
		ts.Fatalf("the plugin crashed: %s", out)
	}
}

// node COMMAND...: run a command in the node's network namespace.
func (s *stage) inNode(ts *testscript.TestScript, neg bool, args []string) {
	run(ts, neg, "nsenter", append([]string{"--net=" + s.node.Path()}, args...)...)
}

// pod POD1 COMMAND...: likewise in a pod's.
func (s *stage) inPod(ts *testscript.TestScript, neg bool, args []string) {
	run(ts, neg, "nsenter", append([]string{"--net=" + s.pods[args[0]].Path()}, args[1:]...)...)
}

// vanish POD1: destroy a namespace, as when a node's runtime dies.
func (s *stage) vanish(_ *testscript.TestScript, _ bool, args []string) { s.pods[args[0]].Close() }

func run(ts *testscript.TestScript, neg bool, name string, args ...string) {
	err := ts.Exec(name, args...)
	if neg && err == nil {
		ts.Fatalf("%s did not fail", strings.Join(args, " "))
	}
	if !neg && err != nil {
		ts.Fatalf("%v", err)
	}
}

// json FILE PATH REGEXP: the value at PATH, as "interfaces.1.mac", matches; FILE may be
// stdout. An absent value reads as "none". [!] turns it around.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH REGEXP")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &v); err != nil {
		ts.Fatalf("%s is no JSON: %v: %s", args[0], err, ts.ReadFile(args[0]))
	}
	got := text(walk(v, strings.Split(args[1], ".")))
	if regexp.MustCompile(os.Expand(args[2], ts.Getenv)).MatchString(got) == neg {
		ts.Fatalf("%s is %s, want %s (or not, if negated)", args[1], got, args[2])
	}
}

func walk(v any, path []string) any {
	for _, step := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case string:
		return v
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// with FROM TO KEY=JSON...: copy a configuration with keys of its top level set; of an
// empty JSON: removed. "@FILE" is the JSON in a file.
func with(ts *testscript.TestScript, _ bool, args []string) {
	var conf map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &conf))
	for _, pair := range args[2:] {
		key, value, _ := strings.Cut(pair, "=")
		if file, ok := strings.CutPrefix(value, "@"); ok {
			value = ts.ReadFile(file)
		}
		if value == "" {
			delete(conf, key)
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			ts.Fatalf("%s: %v: %s", key, err, value)
		}
		conf[key] = v
	}
	out, err := json.Marshal(conf)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), out, 0o600))
}

// rows TABLE: print a table's rows as JSON, one a line.
func (s *stage) rows(ts *testscript.TestScript, _ bool, args []string) {
	lines, err := s.read(args[0])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("rows"), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	ts.Check(ts.Exec("cat", "rows"))
}

func (s *stage) read(table string) ([]string, error) {
	set, err := maps.Open(s.node.PinPath + "/v1/maps")
	if err != nil {
		return nil, err
	}
	defer set.Close()
	switch table {
	case "pods":
		return lines(maps.Collect(set.Pods.All()))
	case "ifaces":
		return lines(maps.Collect(set.Ifaces.All()))
	case "hostports":
		return lines(maps.Collect(set.Hostports.All()))
	case "limits":
		return lines(maps.Collect(set.Limits.All()))
	case "nonmasq":
		return lines(maps.Collect(set.Nonmasq.All()))
	case "excluded":
		return lines(maps.Collect(set.Excluded.All()))
	case "config":
		config, err := set.Config.Get()
		return lines([]maps.NodeConfig{config}, err)
	case "counters":
		return lines(maps.Collect(set.Counters.All()))
	}
	return nil, fmt.Errorf("no table %q", table)
}

func lines[T any](rows []T, err error) ([]string, error) {
	var out []string
	for _, r := range rows {
		b, jsonErr := json.Marshal(r)
		out, err = append(out, string(b)), errors.Join(err, jsonErr)
	}
	return out, err
}
