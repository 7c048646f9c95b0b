// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// LimitChange says what the limits of a pod are to be from now on. A direction that is
// nil stays as it is, a rate of 0 lifts its limit.
type LimitChange struct{ Ingress, Egress *Rate }

// settleTime is what a packet that has left the pod takes to the program that reads the
// egress row, on a busy machine.
const settleTime = 50 * time.Millisecond

// SetLimits changes the limits of an attachment that lives, without losing a packet that
// the old or the new limit lets through. It is a transaction; and it may be repeated, as
// after a kill, which may leave row and shaper apart.
func SetLimits(d *Deps, i maps.Iface, change LimitChange) error {
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	p, err := openLive(d, i)
	if err != nil {
		return err
	}
	defer p.close()
	return p.set(change)
}

func (p *live) set(change LimitChange) error {
	var undo undoStack
	var err error
	for _, part := range []struct {
		rate *Rate
		dir  maps.Direction
	}{{change.Ingress, maps.Ingress}, {change.Egress, maps.Egress}} {
		if part.rate == nil || err != nil {
			continue
		}
		err = p.change(part.dir, *part.rate, &undo)
	}
	if err == nil {
		err = p.stays()
	}
	if err != nil {
		return errors.Join(err, undo.run(), p.dropIfGone())
	}
	return nil
}

// change sets one direction. What the pod sends meets the row after the shaper, and no
// packet that the shaper let through may be too many there: so the row is the wider one
// of the two at any time.
func (p *live) change(dir maps.Direction, rate Rate, undo *undoStack) error {
	old, err := p.Datapath.Maps.Limits.Get(p.row.Ifindex, dir)
	had := err == nil
	if err != nil && !errors.Is(err, maps.ErrNotFound) {
		return err
	}
	undo.push(dir.String()+" limit", func() error { return p.restore(dir, old, had) })
	kind := p.kindFor(old)
	s := rate.shaper(p.row.MTU, kind)
	row := rate.limit(s, p.row.Ifindex, dir, kind)
	write, shape := func() error { return p.writeRows(row) }, func() error { return p.shape(dir, s) }
	switch {
	case !had && rate.Rate == 0:
		return shape() // there is none, unless somebody was killed half-way
	case dir == maps.Ingress:
		return firstError(shape, write)
	case old.Rate > 0 && (rate.Rate == 0 || rate.Rate > old.Rate):
		return firstError(write, shape)
	}
	return firstError(func() error { return p.makeRoom(old) }, shape, settle, write)
}

// makeRoom lets pass, beyond the old rate, what leaves the pod at once when its shaper has
// to be opened to be changed.
func (p *live) makeRoom(old maps.Limit) error {
	if old.Rate == 0 {
		return nil
	}
	old.Burst = 8 * mostBytes
	return p.Datapath.Maps.Limits.Put(old)
}

// settle waits until what left the pod before has passed the row.
func settle() error {
	<-time.After(settleTime)
	return nil
}

// kindFor leaves a shaper that stands as it is; a new one is as ADD would make it now.
func (p *live) kindFor(old maps.Limit) maps.Shaper {
	if old.Shaper != 0 {
		return old.Shaper
	}
	return p.kind
}

// restore makes a direction what it was.
func (p *live) restore(dir maps.Direction, old maps.Limit, had bool) error {
	var err error
	if had {
		err = p.writeRows(old)
	} else {
		err = errors.Join(p.writeFlags(dir, false), p.Datapath.Maps.Limits.Delete(p.row.Ifindex, dir))
	}
	rate := Rate{old.Rate, old.Burst}
	return errors.Join(err, p.shape(dir, rate.shaper(p.row.MTU, p.kindFor(old))))
}

func (p *live) shape(dir maps.Direction, s netdev.Shaper) error {
	h, index := p.Node, p.row.Ifindex
	if dir == maps.Egress {
		h, index = p.pod, p.podIndex
	}
	var err error
	if s.Rate > 0 && p.chained() {
		err = freeRoot(h, index)
	}
	if err != nil {
		return err
	}
	if s.Rate == 0 {
		err = h.OpenShaper(index)
	} else {
		err = h.ChangeShaper(index, s)
	}
	if errors.Is(err, unix.ENODEV) {
		return errors.Join(ErrWentAway, err)
	}
	return err
}

// writeRows writes the limit, and in all rows of the attachment that there is one.
func (p *live) writeRows(l maps.Limit) error {
	on := l.Rate > 0
	if !on { // the program that finds the flag goes by the row
		if err := p.writeFlags(l.Direction, false); err != nil {
			return err
		}
	}
	if err := p.Datapath.Maps.Limits.Put(l); err != nil || !on {
		return err
	}
	return p.writeFlags(l.Direction, true)
}

func (p *live) writeFlags(dir maps.Direction, on bool) error {
	flag := maps.PodLimitIngress
	if dir == maps.Egress {
		flag = maps.PodLimitEgress
	}
	set := func(f maps.PodFlags) maps.PodFlags {
		if on {
			return f | flag
		}
		return f &^ flag
	}
	m := p.Datapath.Maps
	for _, addr := range p.row.Addrs {
		row, err := m.Pods.Get(addr)
		if err == nil && row.Generation == p.row.Generation {
			row.Flags = set(row.Flags)
			err = m.Pods.Change(row)
		}
		if err != nil && !errors.Is(err, maps.ErrNotFound) { // then DEL is at work: see still
			return err
		}
	}
	p.row.Flags = set(p.row.Flags)
	if err := m.Ifaces.Change(p.row); err != nil {
		return fmt.Errorf("%w: %w", ErrWentAway, err)
	}
	return nil
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
