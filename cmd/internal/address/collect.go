// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-cni/culvert/maps"
)

// Check makes sure that an attachment has its addresses: those of prev that the sets give, and
// at least one.
func (p *Pool) Check(owner maps.Owner, sets []Set, prev []netip.Addr) error {
	held, err := p.Held(owner)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return fmt.Errorf("%w: %s has none", ErrNotHeld, owner)
	}
	for _, addr := range prev {
		ours := slices.ContainsFunc(sets, func(s Set) bool { return s.Gives(addr) })
		if !ours || slices.Contains(held, addr) {
			continue
		}
		l, err := p.Table.Get(owner.Network, addr)
		if err == nil && l.State == maps.AddressHeld {
			return HeldError{addr, l.Owner}
		}
		return fmt.Errorf("%w: %s of %s", ErrNotHeld, addr, owner)
	}
	return nil
}

// Full is ErrNoneLeft if a set has no address to give, now or in a moment.
func (p *Pool) Full(network string, sets []Set) error {
	held := make([]uint64, len(sets))
	for l, err := range p.Table.Leases() {
		if err != nil {
			return err
		}
		if l.Network != network || l.State != maps.AddressHeld {
			continue
		}
		for i, s := range sets {
			if s.Gives(l.Addr) {
				held[i]++
			}
		}
	}
	for i, s := range sets {
		if held[i] >= s.Size() {
			return noneLeft(network, s)
		}
	}
	return nil
}

// GC gives back what the attachments of a network have that valid does not name. A nil valid,
// other than an empty one, says nothing: then those go that are not alive. It goes on after an
// error.
func (p *Pool) GC(network string, valid []Attachment, alive func(maps.Tenant) bool) (freed []maps.Owner, err error) {
	tenants, err := maps.Collect(p.Table.Tenants())
	if err != nil {
		return nil, err
	}
	var errs []error
	known := map[maps.Owner]bool{}
	stale := func(t maps.Tenant) bool {
		if valid == nil {
			return !alive(t)
		}
		return !slices.Contains(valid, Attachment{t.Container, t.IfName})
	}
	for _, t := range tenants {
		if t.Network != network {
			continue
		}
		known[t.Owner] = true
		if !stale(t) {
			continue
		}
		freed = append(freed, t.Owner)
		errs = append(errs, p.Release(t.Owner))
	}
	if valid != nil {
		errs = append(errs, p.sweep(network, known))
	}
	return freed, errors.Join(errs...)
}

// sweep gives back leases of whom no row tells, which no verb leaves.
func (p *Pool) sweep(network string, known map[maps.Owner]bool) error {
	leases, err := maps.Collect(p.Table.Leases())
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range leases {
		if l.Network != network || l.State != maps.AddressHeld || known[l.Owner] {
			continue
		}
		if _, err := p.Table.Tenant(l.Owner); errors.Is(err, maps.ErrNotFound) {
			errs = append(errs, p.release(l.Owner, l.Addr))
		}
	}
	return errors.Join(errs...)
}

// Rebuild gives the pods that live the leases that a table made anew does not tell of. pods is
// called under the lock, and once in the life of a table. An address that two say they have is
// the first one's.
func (p *Pool) Rebuild(pods func() ([]maps.Iface, error)) (rebuilt int, err error) {
	unlock, err := p.Lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if done, err := p.Table.Rebuilt(); err != nil || done {
		return 0, err
	}
	list, err := pods()
	if err != nil {
		return 0, err
	}
	for _, pod := range list {
		if err := p.rebuild(pod); err != nil {
			return rebuilt, err
		}
		rebuilt++
	}
	return rebuilt, p.Table.SetRebuilt(p.Now())
}

func (p *Pool) rebuild(pod maps.Iface) error {
	row := maps.Tenant{Owner: pod.Owner, Addrs: pod.Addrs, Netns: pod.Netns, NetnsPath: pod.NetnsPath, Since: p.Now()}
	if err := p.Table.PutTenant(row); err != nil {
		return err
	}
	for _, addr := range pod.Addrs {
		err := p.Table.Claim(maps.Lease{Addr: addr, Owner: pod.Owner, State: maps.AddressHeld, Since: p.Now()})
		if err != nil && !errors.Is(err, maps.ErrExists) {
			return err
		}
	}
	return nil
}
