// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
)

// RangesMode says where a node's ranges come from.
type RangesMode string

const (
	RangesNode  RangesMode = "node"  // node.spec.podCIDRs
	RangesPools RangesMode = "pools" // blocks of pools whose selector the node matches
)

// Options is what a Cluster needs.
type Options struct {
	Client   kubernetes.Interface
	Blocks   *Client
	NodeName string
	Mode     RangesMode // default RangesNode
	// Leases are those of the cluster's network alone: what this node holds outside its ranges
	// it tells the others of. It fails, rather than leave any out, where it cannot know.
	Leases func() ([]Lease, error)
	Log    *slog.Logger

	// ReclaimAfter is how long a Node is gone before its blocks are (5 minutes), TakeoverDelay
	// how long a node has to tell what it has of a range that was given to this one (3 seconds).
	ReclaimAfter, TakeoverDelay time.Duration
	Now                         func() time.Time

	pace pace
}

// pace is how fast things go; tests change it.
type pace struct {
	gather  time.Duration // changes that come so soon after the first are looked at with it
	poll    time.Duration // how often the leases are read
	grace   time.Duration // an empty range is kept so long for ADDs that began before it was withdrawn
	idle    time.Duration // an empty block is kept so long for pods to come
	status  time.Duration // a tenth of the shortest time between two writes of a block's status
	retry   time.Duration // after an error, doubled with each further one
	turn    time.Duration // between nodes that would all delete one block
	request time.Duration // the longest that a request may take
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{
		{&o.ReclaimAfter, 5 * time.Minute}, {&o.TakeoverDelay, 3 * time.Second},
		{&o.pace.gather, 100 * time.Millisecond}, {&o.pace.poll, time.Second},
		{&o.pace.grace, 10 * time.Second}, {&o.pace.idle, time.Minute},
		{&o.pace.status, 100 * time.Millisecond}, {&o.pace.retry, 500 * time.Millisecond},
		{&o.pace.turn, 5 * time.Second}, {&o.pace.request, 10 * time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	if o.Mode == "" {
		o.Mode = RangesNode
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Cluster keeps this node's blocks right, and tells what the node should be.
type Cluster struct {
	Options
	sources
	changed chan struct{}

	// Of Run alone.
	self     node                 // as it was when its Node was last there
	leases   []Lease              // nil: they could not be read
	unknown  string               // why
	lasting  map[string]time.Time // conditions, since when they hold
	released map[string]bool      // names of blocks that are to go, though their pool gives addresses
	done     map[string]time.Time // when a block's status was written, or blocks of a gone node deleted
	failures int

	mu    sync.Mutex
	state State
	ready bool
}

// New makes a Cluster that knows nothing before it runs.
func New(o Options) *Cluster {
	o.setDefaults()
	c := &Cluster{Options: o, changed: make(chan struct{}, 1),
		lasting: map[string]time.Time{}, released: map[string]bool{}, done: map[string]time.Time{}}
	c.sources = newSources(o)
	return c
}

// State is the latest, which nobody changes; false until all that it is made of has been seen
// and the node has its blocks.
func (c *Cluster) State() (State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.ready
}

// Changed has something to receive after State has become another one.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// Run goes on until ctx ends; what fails is tried again. Without the API server the State stays
// as it is.
func (c *Cluster) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, r := range c.reflectors {
		watches.Go(func() { r.RunWithContext(ctx) })
	}
	due := c.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.dirty:
			due = c.Now()
			if !pause(ctx, c.pace.gather) {
				return nil
			}
			empty(c.dirty)
		case <-timer.C:
		}
		if c.readLeases() || !c.Now().Before(due) {
			due = c.look(ctx)
		}
		timer.Reset(max(0, min(c.pace.poll, due.Sub(c.Now()))))
	}
}

// look looks at everything, does what is to be done, and says when to look again.
func (c *Cluster) look(ctx context.Context) time.Time {
	p, ok := c.begin()
	if !ok {
		return c.Now().Add(c.pace.poll)
	}
	bounded, cancel := context.WithTimeout(ctx, 3*c.pace.request) // an API server that hangs must not hold up the State
	defer cancel()
	err := p.run(bounded)
	c.publish(p.state(), p.claimed)
	if err == nil || ctx.Err() != nil {
		c.failures = 0
		return p.next
	}
	c.failures++
	again := c.pace.retry << min(c.failures-1, 6)
	again += rand.N(again)
	c.Log.Warn("kubernetes: will try again", "in", again.Round(time.Millisecond), "error", err)
	return c.Now().Add(again)
}

func (c *Cluster) publish(s State, claimed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready := c.ready || claimed
	if ready == c.ready && reflect.DeepEqual(s, c.state) {
		return
	}
	c.state, c.ready = s, ready
	signal(c.changed)
}

// readLeases says whether they are others than before. Times are not compared: whoever reads
// them may reckon them from another clock.
func (c *Cluster) readLeases() bool {
	leases, err := c.Leases()
	if err != nil {
		if err.Error() != c.unknown {
			c.Log.Warn("kubernetes: cannot tell which addresses are held", "error", err)
		}
		leases, c.unknown = nil, err.Error()
	} else if leases == nil {
		leases = []Lease{}
	}
	slices.SortFunc(leases, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	equal := (leases == nil) == (c.leases == nil) && slices.EqualFunc(leases, c.leases, func(a, b Lease) bool {
		return a.Addr == b.Addr && a.Container == b.Container && a.Released == b.Released
	})
	if !equal {
		c.leases = leases
	}
	return !equal
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func empty(ch chan struct{}) {
	select {
	case <-ch:
	default:
	}
}

// pause says whether ctx went on for d.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
