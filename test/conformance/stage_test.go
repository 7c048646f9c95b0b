// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// stage is a node with two uplinks, and a directory for IPAM plugins of the tests' own.
type stage struct {
	*netns.Node
	plugins string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Node: netns.Wire(t, netns.Layout{Uplinks: 2}).Nodes[0], plugins: t.TempDir()}
	for name, script := range ipamPlugins {
		if err := os.WriteFile(filepath.Join(s.plugins, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// ipamPlugins are such as none that a node has.
var ipamPlugins = map[string]string{
	"ipam-none":    `[ $CNI_COMMAND = ADD ] && echo '{}'; exit 0`,
	"ipam-rubbish": `echo 'panic: oops'; exit 0`,
	"ipam-dies":    `[ $CNI_COMMAND = DEL ] && exit 0; echo 'no disk' >&2; exit 3`,
	"ipam-later":   `[ $CNI_COMMAND = DEL ] && exit 0; echo '{"code": 11, "msg": "locked"}'; exit 1`,
	"ipam-many":    `[ $CNI_COMMAND = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.244.0.8/24"}, {"address": "10.244.0.9/24"}]}'; exit 0`,
	"ipam-nogc":    `[ $CNI_COMMAND = GC ] && { echo '{"code": 60, "msg": "not now"}'; exit 1; }; PATH=$CNI_PATH exec host-local`,
	"ipam-loop":    `[ $CNI_COMMAND = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "127.0.0.1/8"}]}'; exit 0`,
}

// path is CNI_PATH.
func (s *stage) path() string { return strings.Join([]string{s.Bin.Dir, s.Bin.Ref, s.plugins}, ":") }

// said is what a call left.
type said struct {
	stdout, stderr string
	status         int
}

// run starts the plugin in the node with exactly this environment.
func (s *stage) run(t *testing.T, env []string, stdin string) said {
	t.Helper()
	cmd := exec.Command(filepath.Join(s.Bin.Dir, "culvert"))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := s.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return said{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// cniError is the error that a call left, held to the protocol.
func (a said) cniError(t *testing.T) netns.CNIError {
	t.Helper()
	var e netns.CNIError
	if err := json.Unmarshal([]byte(a.stdout), &e); err != nil || e.Code == 0 || e.Msg == "" {
		t.Fatalf("exit %d, want one error JSON on stdout (%v), got %q, stderr %q", a.status, err, a.stdout, a.stderr)
	}
	return e
}

// sane is what holds for every call.
func (a said) sane(t *testing.T) {
	t.Helper()
	if strings.Contains(a.stdout, "has a bug") || strings.Contains(a.stdout+a.stderr, "goroutine ") {
		t.Fatalf("the plugin crashed: %s%s", a.stdout, a.stderr)
	}
	var any json.RawMessage
	if a.stdout != "" && json.Unmarshal([]byte(a.stdout), &any) != nil {
		t.Errorf("stdout is not one JSON: %q", a.stdout)
	}
	if a.status != 0 && a.status != 1 {
		t.Errorf("exit %d", a.status)
	}
}

var ours = regexp.MustCompile(`(?m)^.*(\bcv[0-9a-f]{12}\b|proto 67).*$`)

// footprint is everything that pods leave on a node: devices, routes, addresses that are
// allocated, rows, pins.
func (s *stage) footprint(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, ask := range [][]string{{"ip", "-o", "link"}, {"ip", "route"}, {"ip", "-6", "route"}} {
		all = append(all, ours.FindAllString(s.MustRun(t, "", ask...), -1)...)
	}
	files, _ := filepath.Glob(s.DataDir + "/*/[0-9f]*[.:]*[0-9a-f]")
	pins, _ := filepath.Glob(s.PinPath + "/v1/links/[pl]o*_*")
	all = append(append(all, files...), pins...)
	set, err := maps.Open(s.PinPath + "/v1/maps")
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ifaces, err1 := maps.Collect(set.Ifaces.All())
	pods, err2 := maps.Collect(set.Pods.All())
	limits, err3 := maps.Collect(set.Limits.All())
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, i := range ifaces {
		all = append(all, "iface "+i.Owner.String())
	}
	for _, p := range pods {
		all = append(all, "pod "+p.Addr.String())
	}
	for _, l := range limits {
		all = append(all, fmt.Sprintf("limit %s %d", l.Direction, l.Rate))
	}
	return append(all, s.hostports(t)...)
}

// hostports lists the rows as "*:8080/tcp 46>80": the families that are led to the pod,
// and the pod's port.
func (s *stage) hostports(t *testing.T) []string {
	t.Helper()
	set, err := maps.Open(s.PinPath + "/v1/maps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	list, err := maps.Collect(set.Hostports.All())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, h := range list {
		families := ""
		if h.Pod4.IsValid() {
			families += "4"
		}
		if h.Pod6.IsValid() {
			families += "6"
		}
		out = append(out, fmt.Sprintf("%s %s>%d", strings.TrimPrefix(h.Key().String(), "hostPort "), families, h.PodPort))
	}
	slices.Sort(out)
	return out
}

// unchanged is the end of every call that fails, and of every row.
func (s *stage) unchanged(t *testing.T, before []string) {
	t.Helper()
	if after := s.footprint(t); !slices.Equal(before, after) {
		t.Errorf("left on the node:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}
