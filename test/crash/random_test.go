// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// state is what the runtime knows of a slot.
type state int

const (
	absent  state = iota
	alive         // ADD returned
	unknown       // a verb about it was killed
	dead          // and its namespace is gone without DEL
)

// slot is a pod that comes and goes. Two slots have one hostPort.
type slot struct {
	name string
	port int
	at   *place
	pod  *netns.Pod // also where state is unknown
	is   state
}

// storm is verbs that are killed at random moments.
type storm struct {
	*bed
	rand  *rand.Rand
	slots []*slot
	kills int
	took  map[string]time.Duration // by verb, when nobody kills it
	faults
}

// L1: 200 kills at random moments, while pods run whose traffic goes on.
func TestPrivilegedL1RandomKills(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	build := newBed
	if seed/1000%2 == 0 { // every other run
		build = newOwnBed
	}
	b := build(t)
	kills := 20
	switch {
	case full():
		kills = 200
	case netns.Emulated():
		kills = 5
	}
	s := &storm{bed: b, rand: rand.New(rand.NewPCG(seed, 0)), took: map[string]time.Duration{}}
	steady := []*netns.Pod{b.add("steady0", 8090), b.add("steady1", 8091)}
	stop := b.traffic(steady)
	for i := range 6 {
		s.slots = append(s.slots, &slot{name: fmt.Sprintf("p%d", i), port: 8100 + i/2})
	}
	for s.kills < kills && !t.Failed() {
		s.round(steady)
		if s.rand.IntN(10) == 0 {
			s.settle(steady)
		}
	}
	s.settle(steady)
	if err := stop(); err != nil {
		t.Errorf("traffic of pods that nothing was done to: %v", err)
	}
	for _, p := range steady {
		if err := errors.Join(b.works(p), p.TryDel(nil)); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	if err := errors.Join(b.collect(), b.leases(), b.same("in the end")); err != nil {
		s.leaks++
		t.Error(err)
	}
	s.faults.kills = s.kills
	count(t, s.faults)
}

// traffic asks the pods all the while, by a connection that stays and by new datagrams.
func (b *bed) traffic(pods []*netns.Pod) (stop func() error) {
	b.Helper()
	var quit atomic.Bool
	done := make(chan error, len(pods))
	for _, p := range pods {
		call := func(proto string, v int) netns.Call {
			c := netns.Call{Proto: proto, Timeout: 2 * netns.Patience}
			c.To = netip.AddrPortFrom(b.node.Uplinks[0].Addr(v), p.HostPort)
			return c
		}
		flow, err := b.net.Outside().Open(call("tcp", 4))
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			defer flow.Close()
			var err error
			for err == nil && !quit.Load() {
				_, err = flow.Ask()
				if err == nil {
					_, err = b.net.Outside().Ask(call("udp", 6))
				}
				time.Sleep(5 * time.Millisecond) // a pace, not a wait
			}
			done <- err
		}()
	}
	return func() error {
		quit.Store(true)
		var errs []error
		for range pods {
			errs = append(errs, <-done)
		}
		return errors.Join(errs...)
	}
}

// round does something to a slot.
func (s *storm) round(steady []*netns.Pod) {
	s.Helper()
	at := s.slots[s.rand.IntN(len(s.slots))]
	if s.rand.IntN(12) == 0 {
		s.otherBuild()
	}
	switch {
	case at.is == absent, at.is == unknown && s.rand.IntN(3) == 0:
		s.addSlot(at)
	case at.is == alive && s.rand.IntN(3) == 0:
		s.verb("CHECK", at, func(n *netns.Node) error { return at.pod.On(n).Check() })
	case at.is != dead && s.rand.IntN(4) == 0: // the machine took the container away
		at.at.vanish()
		at.is = dead
	case s.rand.IntN(4) == 0:
		s.gcWithout(at, steady)
	default:
		if s.verb("DEL", at, func(n *netns.Node) error { return at.pod.On(n).TryDelBare() }) {
			s.forget(at)
		} else if at.is != dead {
			at.is = unknown
		}
	}
}

func (s *storm) forget(at *slot) {
	at.at.vanish()
	at.is, at.pod = absent, nil
}

func (s *storm) addSlot(at *slot) {
	s.Helper()
	if at.is == absent {
		at.at = s.place(at.name)
		s.Cleanup(at.at.vanish)
	}
	spec := s.spec(at.at)
	spec.Ports = netns.Both(at.port, port)
	held := slices.ContainsFunc(s.slots, func(o *slot) bool { return o != at && o.port == at.port && (o.is == alive || o.is == unknown) })
	at.pod = s.node.Unfinished(spec)
	var p *netns.Pod
	ok := s.verb("ADD", at, func(n *netns.Node) (err error) {
		p, err = n.TryAdd(spec)
		if held && netns.Code(err) == 100 {
			err = nil
		}
		return err
	})
	switch {
	case !ok:
		at.is = unknown
	case p == nil: // the hostPort is held; the ADD is undone
		s.forget(at)
	default:
		at.is, at.pod = alive, p.On(s.node)
		s.unique(at)
	}
}

// unique counts addresses that two living pods have.
func (s *storm) unique(at *slot) {
	s.Helper()
	for _, o := range s.slots {
		if o != at && o.is == alive && (o.pod.V4 == at.pod.V4 || o.pod.V6 == at.pod.V6) {
			s.duplicates++
			s.Errorf("%s and %s have %s, %s and %s, %s", o.name, at.name, o.pod.V4, o.pod.V6, at.pod.V4, at.pod.V6)
		}
	}
}

func (s *storm) valid(steady []*netns.Pod) []*netns.Pod {
	list := slices.Clone(steady)
	for _, o := range s.slots {
		if o.is == alive {
			list = append(list, o.pod)
		}
	}
	return list
}

// gcWithout collects one slot and all that are not known to live.
func (s *storm) gcWithout(at *slot, steady []*netns.Pod) {
	s.Helper()
	if at.is == alive {
		at.is = unknown
	}
	if !s.verb("GC", at, func(n *netns.Node) error { return s.gc(n, s.valid(steady)...) }) {
		return
	}
	for _, o := range s.slots {
		if o.is == unknown || o.is == dead {
			s.forget(o)
		}
	}
}

// settle collects what is not known to live, and looks at those that do.
func (s *storm) settle(steady []*netns.Pod) {
	s.Helper()
	// An IPAM plugin may outlive the plugin that was killed, for a moment.
	if err := netns.Poll(func() error { return errors.Join(s.collect(s.valid(steady)...), s.leases(s.valid(steady)...)) }); err != nil {
		s.leaks++
		s.Errorf("after GC: %v", err)
	}
	for _, o := range s.slots {
		if o.is == unknown || o.is == dead {
			s.forget(o)
		}
		if o.is == alive {
			if err := s.works(o.pod); err != nil {
				s.Errorf("%s: %v", o.name, err)
			}
		}
	}
}

// verb runs one, and mostly kills it. It says whether the verb came to its end; any other
// end than success is a failure.
func (s *storm) verb(name string, at *slot, run func(*netns.Node) error) bool {
	s.Helper()
	if s.took[name] == 0 || s.rand.IntN(4) == 0 {
		start := time.Now()
		if err := run(s.node); err != nil {
			s.Errorf("%s of %s: %v", name, at.name, err)
		}
		s.took[name] = time.Since(start)
		return true
	}
	after := time.Duration(s.rand.Int64N(int64(s.took[name])))
	s.order(Orders{After: after + 1})
	err := run(s.traced)
	if err != nil && strings.Contains(err.Error(), killed) {
		s.kills++
		return false
	}
	if err != nil {
		s.Errorf("%s of %s, which was not killed: %v", name, at.name, err)
	}
	return true
}

// killAfter runs the plugin and kills it, if it is not faster.
func killAfter(plugin string, after time.Duration) (unix.WaitStatus, error) {
	proc, err := os.StartProcess(plugin, []string{plugin}, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	defer time.AfterFunc(after, func() { _ = proc.Kill() }).Stop()
	ps, err := proc.Wait()
	if err != nil {
		return 0, err
	}
	return unix.WaitStatus(ps.Sys().(syscall.WaitStatus)), nil
}
