// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// NS is a network namespace that lives as long as its descriptor, or as long as
// a socket that was made inside.
type NS struct {
	Name string // for messages only

	mu   sync.Mutex
	file *os.File
}

// RequireRoot skips a test that may not make namespaces.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("needs root")
	}
}

// New makes a namespace with its loopback up, where addresses are usable at
// once (no duplicate address detection). It is closed when the test ends.
func New(tb testing.TB, name string) *NS {
	tb.Helper()
	RequireRoot(tb)
	ns, err := TryNew(name)
	if err != nil {
		tb.Fatalf("make namespace %s: %v", name, err)
	}
	tb.Cleanup(ns.Close)
	return ns
}

// TryNew is New for a namespace that the caller closes.
func TryNew(name string) (*NS, error) {
	ns := &NS{Name: name}
	err := onThread(func() error {
		if err := ns.unshare(); err != nil {
			return err
		}
		var errs []error
		for _, at := range []string{"all", "default"} {
			for key, value := range map[string]string{"accept_dad": "0", "disable_ipv6": "0"} {
				errs = append(errs, os.WriteFile("/proc/sys/net/ipv6/conf/"+at+"/"+key, []byte(value), 0o644))
			}
		}
		return errors.Join(errs...)
	})
	if err == nil {
		_, err = ns.Run("", "ip", "link", "set", "lo", "up")
	}
	if err != nil && ns.file != nil {
		ns.Close()
	}
	return ns, err
}

// unshare leaves the calling thread in a new namespace and keeps hold of that.
func (ns *NS) unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	ns.file = f
	return nil
}

// Path names the namespace to other processes, as a runtime would in CNI_NETNS;
// empty when it is closed.
func (ns *NS) Path() string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.file == nil {
		return ""
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.file.Fd())
}

// Close lets the namespace go; whatever is in it goes too. Idempotent.
func (ns *NS) Close() {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.file != nil {
		_ = ns.file.Close()
		ns.file = nil
	}
}

// Do runs f inside the namespace. Sockets that f makes and processes that it
// starts stay there. f must not start goroutines that make sockets.
func (ns *NS) Do(f func() error) error {
	return onThread(func() error {
		ns.mu.Lock()
		if ns.file == nil {
			ns.mu.Unlock()
			return fmt.Errorf("enter namespace %s: %w", ns.Name, os.ErrClosed)
		}
		err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET)
		ns.mu.Unlock()
		if err != nil {
			return fmt.Errorf("enter namespace %s: %w", ns.Name, err)
		}
		return f()
	})
}

// onThread runs f, which may change the thread's namespace, on a thread of its
// own. A thread that cannot be brought back is never given to other goroutines:
// it stays locked and ends with the goroutine.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			done <- errors.Join(err, fmt.Errorf("leave namespace: %w", back))
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// Start starts a command inside. (`ip netns exec` would remount /sys and hide
// the pins.)
func (ns *NS) Start(cmd *exec.Cmd) error { return ns.Do(cmd.Start) }

// Run runs a command inside and returns its output; stdin may be empty.
func (ns *NS) Run(stdin string, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := ns.Start(cmd); err != nil {
		return "", fmt.Errorf("start %s in %s: %w", argv[0], ns.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s in %s: %w: %s%s\n%s", strings.Join(argv, " "), ns.Name, err, errs.String(), out.String(), stdin)
	}
	return out.String(), nil
}

// MustRun is Run for commands that have to succeed.
func (ns *NS) MustRun(tb testing.TB, stdin string, argv ...string) string {
	tb.Helper()
	out, err := ns.Run(stdin, argv...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// IP runs lines of ip(8) in one go ("addr add 10.0.0.1/24 dev eth0").
func (ns *NS) IP(tb testing.TB, lines ...string) {
	tb.Helper()
	ns.MustRun(tb, strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
}

// Sysctl writes a setting of the namespace, named by its path below /proc/sys.
func (ns *NS) Sysctl(tb testing.TB, name, value string) {
	tb.Helper()
	err := ns.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644) })
	if err != nil {
		tb.Fatalf("set %s in %s: %v", name, ns.Name, err)
	}
}

// GetSysctl reads what Sysctl writes.
func (ns *NS) GetSysctl(tb testing.TB, name string) string {
	tb.Helper()
	var b []byte
	err := ns.Do(func() (err error) { b, err = os.ReadFile("/proc/sys/" + name); return err })
	if err != nil {
		tb.Fatalf("read %s in %s: %v", name, ns.Name, err)
	}
	return strings.TrimSpace(string(b))
}
