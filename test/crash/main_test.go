// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

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
	status := m.Run()
	if sum.kills > 0 {
		fmt.Println(sum.faults)
	}
	os.Exit(status)
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

// ordersIn is the file with the Orders of the tracer in a directory.
func ordersIn(dir string) string { return filepath.Join(dir, "orders") }

// runPlugin does what it is told to do to the plugin.
func runPlugin() (unix.WaitStatus, error) {
	b, err := os.ReadFile(ordersIn(filepath.Dir(os.Args[0])))
	if err != nil {
		return 0, err
	}
	var o Orders
	if err := json.Unmarshal(b, &o); err != nil {
		return 0, err
	}
	if o.After > 0 {
		return killAfter(o.Plugin, o.After)
	}
	var freeze func(Report)
	if o.Freeze {
		freeze = func(r Report) {
			for r.write(o.Report) == nil {
				_ = unix.Pause() // no thread of the plugin's goes on from its stop
			}
		}
	}
	report, status, err := trace(o.Plugin, o.At, freeze)
	if err == nil {
		err = report.write(o.Report)
	}
	return status, err
}

// traced is a node whose plugin runs under the tracer.
func traced(tb testing.TB, n *netns.Node) *netns.Node {
	tb.Helper()
	bin := *n.Bin
	bin.Dir = tb.TempDir()
	// Not a link: where our binary lies need not be a path of this mount namespace. Not
	// written by us: whom another test forks meanwhile would keep it open (ETXTBSY).
	out, err := exec.Command("cp", fmt.Sprintf("/proc/%d/exe", os.Getpid()), filepath.Join(bin.Dir, "culvert")).CombinedOutput()
	if err != nil {
		tb.Fatalf("copy the tracer: %v: %s", err, out)
	}
	t := *n
	t.Bin = &bin
	return &t
}

// order tells the node's tracer what to do to the next verbs.
func (b *bed) order(o Orders) {
	b.Helper()
	o.Plugin, o.Report = filepath.Join(b.node.Bin.Dir, "culvert"), filepath.Join(b.traced.Bin.Dir, "report")
	_ = os.Remove(o.Report)
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(ordersIn(b.traced.Bin.Dir), text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// report is about the last verb.
func (b *bed) report() (Report, error) {
	text, err := os.ReadFile(filepath.Join(b.traced.Bin.Dir, "report"))
	if err != nil {
		return Report{}, fmt.Errorf("the tracer wrote nothing: %w", err)
	}
	var r Report
	return r, json.Unmarshal(text, &r)
}

// killed is what a verb ends by.
var killed = fmt.Sprintf("exit status %d", 128+int(unix.SIGKILL))
