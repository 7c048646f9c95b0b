// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// envMounts says that the mount namespace is the tests' own.
const envMounts = "CULVERT_CRASH_MOUNTS"

// TestMain makes this binary the tracer where it is called culvert. The tests run in a
// mount namespace of their own, with a bpffs that they may unmount.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "culvert" {
		exit(runPlugin())
	}
	switch {
	case os.Getuid() != 0:
	case os.Getenv(envMounts) == "":
		exit(runAgain())
	default:
		if err := mountBPFFS(); err != nil {
			exit(0, err)
		}
	}
	os.Exit(m.Run())
}

func exit(status unix.WaitStatus, err error) {
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(3)
	case status.Signaled():
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
}

// runAgain runs the tests in a mount namespace of their own. They end with us.
func runAgain() (unix.WaitStatus, error) {
	runtime.LockOSThread() // a death signal is about the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envMounts+"=own")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, err
	}
	return unix.WaitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

const bpffs = "/sys/fs/bpf"

// mountBPFFS leaves one bpffs there, with nothing under it.
func mountBPFFS() error {
	for unix.Unmount(bpffs, unix.MNT_DETACH) == nil {
	}
	return unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700")
}

// runPlugin is told by the environment what to do to the plugin, or by a file beside the
// name that it was started by.
func runPlugin() (unix.WaitStatus, error) {
	if told, err := os.ReadFile(afterFile(filepath.Dir(os.Args[0]))); err == nil {
		plugin, after, _ := strings.Cut(string(told), "\n")
		d, err := time.ParseDuration(after)
		if err != nil {
			return 0, err
		}
		return killAfter(plugin, d)
	}
	plugin := os.Getenv(envPlugin)
	write := func(r Report) error { return r.write(os.Getenv(envReport)) }
	var freeze func(Report)
	if os.Getenv(envFreeze) != "" {
		freeze = func(r Report) {
			for write(r) == nil {
				_ = unix.Pause() // no thread of the plugin's goes on from its stop
			}
		}
	}
	at, _ := strconv.Atoi(os.Getenv(envAt))
	report, status, err := trace(plugin, at, freeze)
	if err == nil {
		err = write(report)
	}
	return status, err
}

// traced is a node whose plugin runs under the tracer.
func traced(tb testing.TB, n *netns.Node) *netns.Node {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	bin := *n.Bin
	bin.Dir = tb.TempDir()
	if err := os.Symlink(self, filepath.Join(bin.Dir, "culvert")); err != nil {
		tb.Fatal(err)
	}
	t := *n
	t.Bin = &bin
	return &t
}

// victim is one verb that is killed at one point.
type victim struct {
	node   *netns.Node // a traced one
	plugin string
	file   string
	at     int
}

func (v victim) env() map[string]string {
	_ = os.Remove(v.file)
	return map[string]string{envPlugin: v.plugin, envAt: strconv.Itoa(v.at), envReport: v.file}
}

// report is about the verb that was run with env.
func (v victim) report() (Report, error) {
	b, err := os.ReadFile(v.file)
	if err != nil {
		return Report{}, fmt.Errorf("the tracer wrote nothing: %w", err)
	}
	var r Report
	return r, json.Unmarshal(b, &r)
}

// kill is what a verb ends by.
var killed = fmt.Sprintf("exit status %d", 128+int(unix.SIGKILL))
