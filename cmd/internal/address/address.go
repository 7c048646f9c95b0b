// SPDX-License-Identifier: Apache-2.0

// Package address is the IPAM plugin culvert-ipam: it gives addresses from ranges and keeps
// count of them in the pinned table addresses, and nowhere else. An address is claimed by a
// row that nobody has, or by taking the one that was released longest ago, once it has cooled
// down. An attachment's own row names what it is about to claim before it does, so that
// whoever is killed in between leaves nothing that DEL, GC or the same ADD again does not find;
// and so that no verb but GC and STATUS walks the table while there are new addresses.
package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/maps"
)

// CoolDown is how long an address that was released is left alone, unless somebody asks for
// just that one: what still comes for the pod that had it does not reach another.
const CoolDown = 10 * time.Second

var (
	// ErrNoneLeft says that every address of a set is held.
	ErrNoneLeft = errors.New("no address is left")
	// ErrCooling says that none is left but some that were released a moment ago.
	ErrCooling = errors.New("no address is free yet")
	// ErrNoRange says that a pool has no range on this node, as yet.
	ErrNoRange = errors.New("there is no range of addresses on this node")
	// ErrNotHeld says that an attachment has not the address that it should have.
	ErrNotHeld = errors.New("address is not held")
)

// HeldError says that another attachment has an address.
type HeldError struct {
	Addr   netip.Addr
	Holder maps.Owner
}

func (e HeldError) Error() string { return fmt.Sprintf("address %s is held by %s", e.Addr, e.Holder) }

// Pool gives the addresses of one table.
type Pool struct {
	Table    *maps.Addresses
	Lock     func() (unlock func(), err error) // taken where a row has to change hands
	Now      func() time.Duration              // CLOCK_MONOTONIC
	CoolDown time.Duration
}

// Add gives an attachment an address of each set, those asked for where they lie; what it has
// already it keeps. After an error it has what it had before. who.Addrs is not looked at.
func (p *Pool) Add(who maps.Tenant, sets []Set, requested []netip.Addr) ([]netip.Addr, error) {
	given, err := p.add(who, sets, requested)
	if !errors.Is(err, maps.ErrFull) {
		return given, err
	}
	if n, pruneErr := p.prune(); n == 0 || pruneErr != nil {
		return nil, errors.Join(err, pruneErr)
	}
	return p.add(who, sets, requested)
}

func (p *Pool) add(who maps.Tenant, sets []Set, requested []netip.Addr) ([]netip.Addr, error) {
	wanted, err := spread(sets, requested)
	if err != nil {
		return nil, err
	}
	a, err := p.begin(who)
	if err != nil {
		return nil, err
	}
	for i, set := range sets {
		if err := a.giveOne(set, wanted[i]); err != nil {
			return nil, errors.Join(err, a.rollBack())
		}
	}
	if err := a.commit(); err != nil {
		return nil, errors.Join(err, a.rollBack())
	}
	return a.given, nil
}

// spread says which address is wanted of each set.
func spread(sets []Set, requested []netip.Addr) ([]netip.Addr, error) {
	wanted := make([]netip.Addr, len(sets))
	for _, addr := range requested {
		at := slices.IndexFunc(sets, func(s Set) bool { return s.Gives(addr) })
		switch {
		case at < 0:
			return nil, netconf.Bad("ips", addr.String(), "in no range of this network")
		case wanted[at].IsValid() && wanted[at] != addr:
			return nil, netconf.Bad("ips", addr.String(), fmt.Sprintf("%s is asked for from the same set of ranges, which gives one address", wanted[at]))
		}
		wanted[at] = addr
	}
	return wanted, nil
}

// Release gives back what an attachment has; it is no error that it has nothing.
func (p *Pool) Release(owner maps.Owner) error {
	tenant, err := p.Table.Tenant(owner)
	if errors.Is(err, maps.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, addr := range tenant.Addrs {
		if err := p.release(owner, addr); err != nil {
			return err // the row stays, for the next time
		}
	}
	return p.Table.DeleteTenant(owner)
}

// release gives one address back, if it is the owner's.
func (p *Pool) release(owner maps.Owner, addr netip.Addr) error {
	held, err := p.holds(owner, addr)
	if err != nil || !held {
		return err
	}
	return p.Table.Change(maps.Lease{Addr: addr, Owner: owner, State: maps.AddressReleased, Since: p.Now()})
}

func (p *Pool) holds(owner maps.Owner, addr netip.Addr) (bool, error) {
	l, err := p.Table.Get(owner.Network, addr)
	if errors.Is(err, maps.ErrNotFound) {
		return false, nil
	}
	return err == nil && l.State == maps.AddressHeld && l.Owner == owner, err
}

// Held lists what an attachment has.
func (p *Pool) Held(owner maps.Owner) ([]netip.Addr, error) {
	tenant, err := p.Table.Tenant(owner)
	if errors.Is(err, maps.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.heldOf(tenant)
}

func (p *Pool) heldOf(tenant maps.Tenant) ([]netip.Addr, error) {
	var held []netip.Addr
	for _, addr := range tenant.Addrs {
		ok, err := p.holds(tenant.Owner, addr)
		if err != nil {
			return nil, err
		}
		if ok {
			held = append(held, addr)
		}
	}
	return held, nil
}

// cool says whether a released address may be given again.
func (p *Pool) cool(l maps.Lease) bool {
	return l.State == maps.AddressReleased && p.Now()-l.Since >= p.CoolDown
}

// prune makes room in a table that is full, of what was released and has cooled down.
func (p *Pool) prune() (n int, err error) {
	unlock, err := p.Lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	leases, err := maps.Collect(p.Table.Leases())
	if err != nil {
		return 0, err
	}
	for _, l := range leases {
		if !p.cool(l) {
			continue
		}
		if err := p.Table.Delete(l.Network, l.Addr); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
