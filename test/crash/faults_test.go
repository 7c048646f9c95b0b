// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// full runs everything (CULVERT_CRASH=full); else a sample that differs from run to run.
func full() bool { return os.Getenv("CULVERT_CRASH") == "full" }

// every is the distance of the points that are tried.
func (s scenario) every() int {
	switch {
	case full():
		return 1
	case netns.Emulated():
		return 60
	case s.loads:
		return 28
	}
	return 7
}

// newLink is RTM_NEWLINK, of which the first one makes the veth.
var newLink = fmt.Sprintf("netlink %d", unix.RTM_NEWLINK)

// scenario is a verb that is killed.
type scenario struct {
	name string
	// prepare gives the attachment that is there before the verb, if any.
	prepare func(b *bed, a *place) (*netns.Pod, error)
	run     func(b *bed, a *place, p *netns.Pod) error
	loads   bool // and so takes seconds
}

var scenarios = []scenario{
	{"ADD", nothing, addKilled, false},
	{"FirstADD", func(b *bed, _ *place) (*netns.Pod, error) { b.unload(); return nil, nil }, addKilled, true},
	{"UpgradeADD", func(b *bed, _ *place) (*netns.Pod, error) { b.otherBuild(); return nil, nil }, addKilled, true},
	{"SecondADD", add, addKilled, false},
	{"DEL", add, func(b *bed, _ *place, p *netns.Pod) error { return p.On(b.traced).TryDel(nil) }, false},
	{"GC", add, func(b *bed, _ *place, _ *netns.Pod) error { return b.gc(b.traced) }, false},
}

func nothing(*bed, *place) (*netns.Pod, error) { return nil, nil }

func add(b *bed, a *place) (*netns.Pod, error) { return b.node.TryAdd(b.spec(a)) }

func addKilled(b *bed, a *place, _ *netns.Pod) error {
	_, err := b.traced.TryAdd(b.spec(a))
	return err
}

// recoveries are what a runtime may do after a verb was killed.
var recoveries = []struct {
	name string
	do   func(b *bed, a *place) error
}{
	{"ADD again", again},
	{"DEL", func(b *bed, a *place) error {
		return errors.Join(b.node.Unfinished(b.spec(a)).TryDelBare(), b.left("after DEL"), again(b, a))
	}},
	{"GC", func(b *bed, a *place) error { return errors.Join(b.collect(), b.left("after GC"), again(b, a)) }},
	{"successor", successor},
}

// again is what the issue asks for: ADD, DEL, GC, and nothing is left.
func again(b *bed, a *place) error {
	p, err := b.node.TryAdd(b.spec(a))
	if err != nil {
		return fmt.Errorf("ADD again: %w", err)
	}
	err = errors.Join(b.works(p), b.leases(p), p.TryDel(nil), b.collect())
	return errors.Join(err, b.same("after ADD, DEL, GC"))
}

// successor is another pod that gets the hostPorts of one that went without DEL, whose
// DEL comes late.
func successor(b *bed, a *place) error {
	dead := b.node.Unfinished(b.spec(a))
	a.vanish()
	heir := b.place("b")
	defer heir.vanish()
	p, err := b.node.TryAdd(b.spec(heir))
	if err != nil {
		return fmt.Errorf("ADD of a successor: %w", err)
	}
	err = errors.Join(b.works(p), dead.TryDelBare(), b.works(p), b.leases(p))
	return errors.Join(err, p.TryDel(nil), b.collect(), b.same("after the successor"))
}

// faults counts.
type faults struct{ points, kills, leaks, duplicates int }

func (f faults) String() string {
	return fmt.Sprintf("faults: points %d, kills %d, leaks %d, duplicates %d", f.points, f.kills, f.leaks, f.duplicates)
}

// sum is that of all tests, which is printed in the end.
var sum struct {
	sync.Mutex
	faults
}

// count adds to the sum what a test has seen.
func count(t *testing.T, f faults) {
	sum.Lock()
	defer sum.Unlock()
	t.Log(f)
	sum.points += f.points
	sum.kills += f.kills
	sum.leaks += f.leaks
	sum.duplicates += f.duplicates
}

// L1: killed after any of its effects, a verb leaves nothing that ADD, DEL or GC does not
// clean, nor that keeps a successor from starting.
func TestPrivilegedL1Killed(t *testing.T) {
	t.Parallel()
	newBed(t).killEach(scenarios)
}

// L1: the same of verbs that give and take addresses by themselves.
func TestPrivilegedL1IPAMKilled(t *testing.T) {
	t.Parallel()
	newOwnBed(t).killEach(slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.loads && s.name != "FirstADD" }))
}

// killEach kills each verb after many of its effects, or all.
func (b *bed) killEach(list []scenario) {
	b.Helper()
	t := b.T
	var f faults
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			b.T = t
			points := b.points(s)
			if i := slices.Index(points, newLink); s.loads && i > 0 {
				points = points[:i] // what comes then is ADD's
			}
			f.points += len(points)
			for at := 1 + os.Getpid()%s.every(); at <= len(points); at += s.every() {
				for _, i := range b.choose(s, at) {
					if b.kill(s, at, i, points, &f) {
						f.kills++
					}
				}
			}
		})
	}
	b.T = t
	count(t, f)
}

// choose picks recoveries for a point: one, in turn, or with everything two, or all.
func (b *bed) choose(s scenario, at int) []int {
	i := at / s.every() % len(recoveries)
	switch {
	case full() && s.name == "ADD":
		return []int{0, 1, 2, 3}
	case full() && !s.loads:
		return []int{i, (i + 2) % len(recoveries)}
	}
	return []int{i}
}

// points runs a verb to its end.
func (b *bed) points(s scenario) []string {
	b.Helper()
	report, err := b.run(s, 0, func(b *bed, a *place) error { return again(b, a) })
	if err != nil {
		b.Fatalf("not killed: %v", err)
	}
	for i, p := range report.Points {
		b.Logf("%3d %s", i+1, p)
	}
	return report.Points
}

// kill says whether the verb was killed.
func (b *bed) kill(s scenario, at, recovery int, points []string, f *faults) bool {
	b.Helper()
	report, err := b.run(s, at, recoveries[recovery].do)
	if err != nil {
		f.leaks++
		b.Errorf("killed after point %d of %d (%s), then %s:\n\t%v", at, len(points), last(report.Points), recoveries[recovery].name, err)
		b.restore()
	}
	return report.Killed
}

func last(points []string) string {
	if len(points) == 0 {
		return "none"
	}
	return strings.Join(points[max(0, len(points)-2):], ", ")
}

// run prepares, runs the verb and recovers.
func (b *bed) run(s scenario, at int, recover func(*bed, *place) error) (Report, error) {
	b.Helper()
	a := b.place("a")
	defer a.vanish()
	p, err := s.prepare(b, a)
	if err != nil {
		b.Fatalf("prepare: %v", err)
	}
	report, err := b.killAt(at, func() error { return s.run(b, a, p) })
	if err == nil {
		err = recover(b, a)
	}
	return report, err
}

// killAt runs a verb by the tracer; the error is one that the kill is not the reason of.
func (b *bed) killAt(at int, verb func() error) (Report, error) {
	b.Helper()
	b.order(Orders{At: at})
	err := verb()
	report, reportErr := b.report()
	switch {
	case reportErr != nil:
		b.Fatalf("%v: %v", reportErr, err)
	case report.Killed != (at > 0 && at <= len(report.Points)), !report.Killed && err != nil, report.Killed && (err == nil || !strings.Contains(err.Error(), killed)):
		return report, fmt.Errorf("unexpected end: %w", err)
	}
	return report, nil
}

// restore goes on after a leak with a node that is as good as new.
func (b *bed) restore() {
	b.Helper()
	if err := errors.Join(b.collect(), b.same("after a GC more")); err != nil {
		b.Fatalf("the node cannot be cleaned: %v", err)
	}
}
