// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

func TestRequests(t *testing.T) {
	for _, tt := range []struct{ name, stdin, args, wantStdin, wantArgs string }{
		{"nothing asked for passes as it is", `{"a": 1}`, "", `{"a": 1}`, ""},
		{"CNI_ARGS alone", `{}`, "K8S_POD_NAME=a;IP=10.0.0.1", `{}`, "IgnoreUnknown=1;K8S_POD_NAME=a;IP=10.0.0.1"},
		{"what the library cannot read goes", `{}`, ";A;B=c=d;IgnoreUnknown=0;E=f;", `{}`, "IgnoreUnknown=1;E=f"},
		{"args.cni over CNI_ARGS", `{"args":{"cni":{"ips":["10.0.0.2"]}}}`, "IP=10.0.0.1;GATEWAY=10.0.0.9", `{"args":{"cni":{"ips":["10.0.0.2"]}}}`, "IgnoreUnknown=1;GATEWAY=10.0.0.9"},
		{"runtimeConfig over args.cni", `{"args":{"cni":{"ips":["10.0.0.2"]}},"runtimeConfig":{"IPs":["10.0.0.3"]}}`, "IP=10.0.0.1", `{"runtimeConfig":{"IPs":["10.0.0.3"]}}`, "IgnoreUnknown=1"},
		{"an empty list asks for nothing", `{"runtimeConfig":{"ips":[]}}`, "IP=10.0.0.1", `{"runtimeConfig":{"ips":[]}}`, "IgnoreUnknown=1;IP=10.0.0.1"},
		{"not ours to judge", `{"args":5,"runtimeConfig":[]}`, "", `{"args":5,"runtimeConfig":[]}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdin, args := requests([]byte(tt.stdin), tt.args)
			if string(stdin) != tt.wantStdin || args != tt.wantArgs {
				t.Errorf("got %s and %q, want %s and %q", stdin, args, tt.wantStdin, tt.wantArgs)
			}
		})
	}
}

// plugin makes an IPAM plugin of a shell script.
func plugin(t *testing.T, script string) *Plugin {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte("#!/bin/sh\ncd "+dir+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Plugin{Type: "fake", Stdin: []byte(`{"cniVersion":"0.4.0"}`), Path: "/nowhere:" + dir}
}

func TestAdd(t *testing.T) {
	ok := `echo '{"ips":[{"version":"4","address":"10.0.0.1/24"}]}'`
	for _, tt := range []struct {
		name, script string
		code         uint // 0: success
	}{
		{"a result without a version", ok, 0},
		{"a result of another version", `echo '{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/24"}}'`, 0},
		{"held since a killed ADD", `[ $CNI_COMMAND = DEL ] && { touch freed; exit 0; }
			[ -e freed ] || { echo '{"code":999,"msg":"duplicate allocation"}'; exit 1; }; ` + ok, 0},
		{"held for good", `[ $CNI_COMMAND = DEL ] && exit 0; echo '{"code":200,"msg":"full"}'; exit 1`, 200},
		{"try again is not tried at once", `[ $CNI_COMMAND = ADD ] || { touch bad; exit 0; }; [ -e bad ] && exit 0; echo '{"code":11,"msg":"later"}'; exit 1`, 11},
		{"no error JSON", `echo oops >&2; exit 3`, types.ErrInternal},
		{"no JSON", `echo oops`, 1},
		{"no version anybody knows", `echo '{"cniVersion":"7.0.0"}'`, 1},
		{"null", `echo null`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := plugin(t, tt.script).Add(context.Background())
			if tt.code == 0 {
				if err != nil || r == nil {
					t.Errorf("got %v, %v", r, err)
				}
				return
			}
			var e *types.Error
			if err == nil || errors.As(err, &e) && e.Code != tt.code || e == nil && tt.code != 1 {
				t.Errorf("got %v, want code %d", err, tt.code)
			}
		})
	}
}

// A plugin that hangs is told to end, then made to.
func TestNoAnswer(t *testing.T) {
	for name, script := range map[string]string{
		"ends":     "exec sleep 60",
		"ignores":  "trap '' TERM; while :; do sleep 60; done",
		"children": "sleep 60", // the shell ends, its child holds the output
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plugin(t, script)
			p.MostTime = 200 * time.Millisecond
			start := time.Now()
			_, err := p.Add(t.Context())
			if !errors.Is(err, ErrNoAnswer) || time.Since(start) > 30*time.Second || strings.Contains(err.Error(), "\n") {
				t.Errorf("after %s: %v", time.Since(start), err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer stop()
			p.MostTime = 0
			if err := p.Del(ctx); !errors.Is(err, ErrNoAnswer) || time.Since(start) > 30*time.Second {
				t.Errorf("after %s: %v", time.Since(start), err)
			}
		})
	}
}

func TestVerbs(t *testing.T) {
	p := plugin(t, `echo $CNI_COMMAND $CNI_ARGS >>calls; cat >>calls`)
	p.Args = "A=b"
	for _, do := range []func(context.Context) error{p.Del, p.Check, p.GC, p.Status} {
		if err := do(context.Background()); err != nil {
			t.Error(err)
		}
	}
	calls, err := os.ReadFile(filepath.Join(strings.TrimPrefix(p.Path, "/nowhere:"), "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"DEL", "CHECK", "GC", "STATUS"} {
		if !strings.Contains(string(calls), verb+` IgnoreUnknown=1;A=b`+"\n"+`{"cniVersion":"0.4.0"}`) {
			t.Errorf("no %s in %s", verb, calls)
		}
	}
}

func TestFind(t *testing.T) {
	for _, name := range []string{"nosuch", "../fake", "..", "/bin/sh"} {
		p := plugin(t, "exit 0")
		p.Type = name
		if err := p.Del(context.Background()); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
