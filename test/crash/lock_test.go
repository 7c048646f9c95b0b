// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/test/netns"
)

// L1: a culvert that is stopped while it holds the lock keeps nobody waiting for longer
// than LockWait: who needs the lock is told, by error 11, to try again, and who holds it;
// pods that run, and verbs that need no lock, do not notice. When it is killed everything
// goes on, also who waits just then.
func TestPrivilegedL1LockHolder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	mapped, plain := b.add("mapped", 8081), b.add("plain", 0)
	holder, tracer := b.freeze("frozen", 8082)
	defer func() { _ = unix.Kill(tracer, unix.SIGKILL) }()
	start := time.Now()
	if err := errors.Join(b.works(mapped), plain.TryDel(nil), b.tryAdd("plain2", 0)); err != nil {
		t.Errorf("what needs no lock: %v", err)
	}
	if took := time.Since(start); took > loader.LockWait && !netns.Emulated() {
		t.Errorf("what needs no lock took %s", took)
	}
	waits := map[string]func() error{
		"ADD": func() error { return b.tryAdd("another", 8083) },
		"DEL": func() error { return mapped.TryDel(nil) },
	}
	type end struct {
		verb string
		err  error
		took time.Duration
	}
	ends := make(chan end)
	for verb, do := range waits {
		go func() {
			start := time.Now()
			err := do()
			ends <- end{verb, err, time.Since(start)}
		}()
	}
	for range waits {
		e := <-ends
		t.Logf("%s: %v after %s", e.verb, e.err, e.took)
		who := fmt.Sprintf("process %d (culvert)", holder)
		if netns.Code(e.err) != 11 || !strings.Contains(e.err.Error(), who) || !strings.Contains(e.err.Error(), b.node.PinPath) || strings.Contains(e.err.Error(), "\n") {
			t.Errorf("%s: want error 11 that names %s and %s, got %v", e.verb, who, b.node.PinPath, e.err)
		}
		if !netns.Emulated() && e.took > loader.LockWait+5*time.Second {
			t.Errorf("%s took %s", e.verb, e.took)
		}
	}
	// One who waits and is told to stop does.
	start = time.Now()
	_, err := hanging(t, b.node, "none").TryAdd(b.specOn("told", 8085))
	if took := time.Since(start); netns.Code(err) != 11 || !strings.Contains(err.Error(), "told to stop") || took > patience+5*time.Second && !netns.Emulated() {
		t.Errorf("ADD that is told to stop: %v after %s", err, took)
	}
	// One who waits gets the lock when its holder is killed.
	waiting := make(chan error)
	go func() { waiting <- b.tryAdd("waiting", 8084) }()
	select {
	case err := <-waiting:
		t.Errorf("ADD did not wait: %v", err)
	case <-time.After(time.Second): // nothing to poll for: it must not happen
	}
	if err := unix.Kill(tracer, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("ADD that waited: %v", err)
	}
	if err := errors.Join(mapped.TryDel(nil), b.tryAdd("another", 8083), b.collect(), b.same("in the end")); err != nil {
		t.Error(err)
	}
}

// add makes a pod with everything, whose hostPorts are of that number; none with 0.
func (b *bed) add(name string, hostPort int) *netns.Pod {
	b.Helper()
	p, err := b.node.TryAdd(b.specOn(name, hostPort))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// tryAdd is ADD and, when that is done, the end of the pod's namespace.
func (b *bed) tryAdd(name string, hostPort int) error {
	_, err := b.node.TryAdd(b.specOn(name, hostPort))
	return err
}

func (b *bed) specOn(name string, hostPort int) netns.PodSpec {
	a := b.place(name)
	b.Cleanup(a.vanish)
	s := b.spec(a)
	if s.Ports = nil; hostPort > 0 {
		s.Ports = netns.Both(hostPort, port)
	}
	return s
}

// freeze stops an ADD under the lock. It gives that process and its tracer, which takes it
// along when it is killed.
func (b *bed) freeze(name string, hostPort int) (plugin, tracer int) {
	b.Helper()
	s := b.specOn(name, hostPort)
	b.order(Orders{})
	p, err := b.traced.TryAdd(s)
	report, reportErr := b.report()
	if err := errors.Join(err, reportErr); err != nil {
		b.Fatal(err)
	}
	if err := p.On(b.node).TryDel(nil); err != nil {
		b.Fatal(err)
	}
	last := -1
	for i, what := range report.Points {
		if what == "flock" {
			last = i
		}
	}
	if last < 0 {
		b.Fatalf("no lock is taken: %v", report.Points)
	}
	b.order(Orders{At: last + 1, Freeze: true})
	go func() { _, _ = b.traced.TryAdd(s) }()
	if err := netns.Poll(func() (err error) { report, err = b.report(); return err }); err != nil {
		b.Fatal(err)
	}
	if !slices.Contains(report.Points[last:], "flock") {
		b.Fatalf("stopped after %v", report.Points[last:])
	}
	return report.Plugin, report.Tracer
}
