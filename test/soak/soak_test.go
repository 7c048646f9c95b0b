// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

const (
	workers    = 4
	mostErrors = 20 // then it ends: what follows is of the same cause
)

// soak is a node whose pods come and go.
type soak struct {
	t     *testing.T
	net   *netns.Net
	node  *netns.Node
	slots []*slot
	time  time.Duration
	seed  uint64

	// still is held by GC and by who counts: nothing else may run meanwhile, as a runtime
	// keeps GC apart from all other verbs. Everybody else shares it.
	still sync.RWMutex
	tally tally
	pace  pace
	group group
}

// TestPrivilegedSoak: whatever comes in whatever order, and is killed whenever, nothing
// fails but what was killed, and with the same pods there is always as much of everything.
func TestPrivilegedSoak(t *testing.T) {
	netns.RequireRoot(t)
	s := newSoak(t)
	fmt.Printf("soak: %s, %d pods, SOAK_SEED=%d\n", s.time, len(s.slots), s.seed)
	defer s.end()
	rng := s.rng(0)
	s.slots[0].mend() // loads the programs
	s.settle(rng)
	flat := &flatness{first: s.count()}
	flat.add(s.weigh())
	start := time.Now()
	for i, every := 0, interval(s.time); time.Since(start) < s.time && !s.hopeless(); i++ {
		s.work(i, min(every, s.time-time.Since(start)))
		s.settle(rng)
		s.compare(flat)
		flat.add(s.weigh())
	}
	s.report(time.Since(start), flat)
}

// newSoak makes the node and its pods' places.
func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, time: 10 * time.Second, seed: uint64(time.Now().UnixNano()) % 1e6}
	pods := 8
	var err error
	if v := os.Getenv("SOAK_TIME"); v != "" {
		pods = 64
		if s.time, err = time.ParseDuration(v); err != nil {
			t.Fatalf("SOAK_TIME: %v", err)
		}
	}
	if v := os.Getenv("SOAK_PODS"); v != "" {
		if pods, err = strconv.Atoi(v); err != nil {
			t.Fatalf("SOAK_PODS: %v", err)
		}
	}
	if v := os.Getenv("SOAK_SEED"); v != "" {
		if s.seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED: %v", err)
		}
	}
	s.net = netns.Wire(t, netns.Layout{})
	s.node, s.group = s.net.Nodes[0], newGroup(t)
	s.net.Outside().Serve(t, 80)
	for i := range pods {
		s.slots = append(s.slots, newSlot(s, i))
	}
	return s
}

func (s *soak) rng(stream int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(stream))) }

// interval is how often there is a count: 30 times, but hardly more often than it takes.
func interval(all time.Duration) time.Duration { return max(all/30, min(all/3, 10*time.Second)) }

// work lets the workers do what comes to their minds.
func (s *soak) work(round int, d time.Duration) {
	var busy sync.WaitGroup
	end := time.Now().Add(d)
	for w := range workers {
		rng := s.rng(1 + round*workers + w)
		busy.Go(func() {
			for time.Now().Before(end) && !s.hopeless() {
				s.step(rng)
			}
		})
	}
	busy.Wait()
}

// step does one thing.
func (s *soak) step(rng *rand.Rand) {
	switch n := rng.IntN(100); {
	case n < 2:
		s.collect(rng, s.kill(rng, "GC"))
	case n < 5:
		s.status(rng)
	case n == 5 && rng.IntN(5) == 0:
		s.rebuild()
	default:
		p := s.slots[rng.IntN(len(s.slots))]
		s.still.RLock()
		defer s.still.RUnlock()
		if p.mu.TryLock() {
			defer p.mu.Unlock()
			p.step(rng, n)
		}
	}
}

// settle brings everything to the state that is counted: each pod alive, nothing torn.
func (s *soak) settle(rng *rand.Rand) {
	s.still.Lock()
	defer s.still.Unlock()
	var busy sync.WaitGroup
	next := make(chan *slot)
	for range workers {
		busy.Go(func() {
			for p := range next {
				p.mend()
			}
		})
	}
	for _, p := range s.slots {
		next <- p
	}
	close(next)
	busy.Wait()
	s.collectNow(true, 0)
	for range 2 * len(s.slots) {
		s.slots[rng.IntN(len(s.slots))].request(rng)
	}
}

// end deletes every pod and wants nothing left.
func (s *soak) end() {
	for _, p := range s.slots {
		p.clear()
	}
	s.collectNow(true, 0)
	s.empty()
}

func (s *soak) hopeless() bool { return s.tally.errors.Load() >= mostErrors }

// fail notes an error that nobody asked for.
func (s *soak) fail(format string, args ...any) {
	s.tally.errors.Add(1)
	s.t.Errorf("%s: "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
}
