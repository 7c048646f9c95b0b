// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// pass is one look at everything: what was known when it began, and what it has changed since.
type pass struct {
	*Cluster
	now        time.Time
	next       time.Time // when something is to be done, if nothing changes before
	here       bool      // this node's Node is there; else nothing is written
	nodes      map[string]node
	pods       map[string]pod
	namespaces map[string]namespace
	pools      map[string]pool
	index      *index

	claimed bool                  // the node has what it can have
	ranges  []netip.Prefix        // its own that give addresses to whoever names no pool
	active  map[netip.Prefix]bool // its own that give addresses to anybody
	held    map[netip.Addr]Lease  // by pods of this node
	seen    map[string]bool       // conditions that hold, see lasts
	faults  []Fault
}

// run does the steps in an order in which each finds what the ones before it have made. One
// that fails does not keep the others from theirs.
func (p *pass) run(ctx context.Context) error {
	p.active, p.held = map[netip.Prefix]bool{}, map[netip.Addr]Lease{}
	for _, l := range p.leases {
		if !l.Released {
			p.held[l.Addr] = l
		}
	}
	err := errors.Join(p.takeNodeRanges(ctx), p.takePoolBlocks(ctx))
	p.claimed = err == nil && p.here
	if p.here {
		err = errors.Join(err, p.reclaim(ctx))
	}
	if p.here && p.Cluster.leases != nil {
		err = errors.Join(err, p.repair(ctx), p.release(ctx), p.report(ctx))
	}
	if p.Cluster.leases == nil {
		p.fault("LeasesUnknown", "cannot tell which addresses are held: %s", p.unknown)
	}
	for condition := range p.lasting {
		if !p.seen[condition] {
			delete(p.lasting, condition)
		}
	}
	return err
}

// own are this node's blocks, sorted.
func (p *pass) own() []block { return p.index.of(p.NodeName) }

// give lets pods have addresses of a block.
func (p *pass) give(b block) { p.active[b.prefix] = true }

// lasts says whether a condition has held in each pass for d; if not yet, the next pass comes
// when it will have.
func (p *pass) lasts(condition string, d time.Duration) bool {
	p.seen[condition] = true
	since, ok := p.lasting[condition]
	if !ok {
		since = p.now
		p.lasting[condition] = since
	}
	return p.passed(since, d)
}

// passed says whether d has passed since a time.
func (p *pass) passed(since time.Time, d time.Duration) bool {
	at := since.Add(d)
	if p.now.Before(at) && at.Before(p.next) {
		p.next = at
	}
	return !p.now.Before(at)
}

func (p *pass) fault(reason, format string, args ...any) {
	f := Fault{reason, fmt.Sprintf(format, args...)}
	if !slices.Contains(p.faults, f) {
		p.faults = append(p.faults, f)
	}
}

// usedOf counts the addresses that are held of a block, without those in narrower blocks of
// other nodes.
func (p *pass) usedOf(b block) (n int64) {
	for a := range p.held {
		if b.prefix.Contains(a) {
			n++
		}
	}
	return n
}
