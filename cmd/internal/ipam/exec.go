// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// The CNI project's package invoke does the same, but takes in OpenTelemetry, and with
// it net/http and TLS: a quarter of the binary.

// busyTries bounds how often a plugin is started that is just being written.
const busyTries = 5

// How long a plugin may take for a verb, and how long it then has to end by SIGTERM, or
// whoever holds its output to let go of that. Runtimes wait for minutes.
const (
	mostTime  = 60 * time.Second
	graceTime = 2 * time.Second
)

// Exists is ErrNotFound if CNI_PATH does not hold the plugin.
func (p *Plugin) Exists() error {
	_, err := p.find()
	return err
}

// find looks for the plugin in the directories of CNI_PATH.
func (p *Plugin) find() (string, error) {
	if strings.ContainsRune(p.Type, os.PathSeparator) || p.Type == "." || p.Type == ".." {
		return "", fmt.Errorf("%w: %q is not the name of a file", ErrNotFound, p.Type)
	}
	for _, dir := range filepath.SplitList(p.Path) {
		path := filepath.Join(dir, p.Type)
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %q is not in %s", ErrNotFound, p.Type, p.Path)
}

// exec runs a verb and gives what the plugin printed. The plugin gets our own
// environment, but for the verb and CNI_ARGS.
func (p *Plugin) exec(ctx context.Context, verb string) ([]byte, error) {
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	most := cmp.Or(p.MostTime, mostTime)
	caller := ctx
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	stdin, args := requests(p.Stdin, p.Args)
	var stdout, stderr bytes.Buffer
	for range busyTries {
		stdout.Reset()
		stderr.Reset()
		cmd := exec.CommandContext(ctx, path)
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		cmd.WaitDelay = graceTime
		cmd.Env = environ(verb, args)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
		if err = cmd.Run(); !errors.Is(err, unix.ETXTBSY) {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it has answered, and left something running
		return stdout.Bytes(), nil
	case caller.Err() != nil:
		return nil, fmt.Errorf("IPAM plugin %s: %w to %s before culvert was told to stop", p.Type, ErrNoAnswer, verb)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("IPAM plugin %s: %w to %s within %s", p.Type, ErrNoAnswer, verb, most)
	}
	return nil, p.explain(verb, err, stdout.Bytes(), stderr.Bytes())
}

// explain makes an error of what a plugin that failed left behind.
func (p *Plugin) explain(verb string, err error, stdout, stderr []byte) error {
	var e types.Error
	if json.Unmarshal(stdout, &e) == nil && e.Code != 0 {
		e.Msg = fmt.Sprintf("IPAM plugin %s: %s", p.Type, e.Msg)
		return &e
	}
	said := bytes.TrimSpace(append(stdout, stderr...))
	return types.NewError(types.ErrInternal, fmt.Sprintf("IPAM plugin %s: %s failed: %v", p.Type, verb, err), string(said))
}

func environ(verb, args string) []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name == "CNI_COMMAND" || name == "CNI_ARGS"
	})
	env = append(env, "CNI_COMMAND="+verb)
	if args != "" {
		env = append(env, "CNI_ARGS="+args)
	}
	return env
}
