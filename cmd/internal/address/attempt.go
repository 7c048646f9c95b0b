// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-cni/culvert/maps"
)

// attempt is one ADD: what the attachment had, what it gets, and how to take that back.
type attempt struct {
	*Pool
	who   maps.Tenant
	had   bool         // its row was there
	row   maps.Tenant  // as it is written by now
	held  []netip.Addr // before
	given []netip.Addr
	undo  []func() error
}

func (p *Pool) begin(who maps.Tenant) (*attempt, error) {
	a := &attempt{Pool: p, who: who}
	row, err := p.Table.Tenant(who.Owner)
	if errors.Is(err, maps.ErrNotFound) {
		return a, nil
	}
	if err == nil {
		a.had, a.row = true, row
		a.held, err = p.heldOf(row)
	}
	return a, err
}

// giveOne gives an address of one set: the one asked for, one that the attachment has, or
// the next.
func (a *attempt) giveOne(set Set, wanted netip.Addr) error {
	if !wanted.IsValid() {
		if at := slices.IndexFunc(a.held, set.Gives); at >= 0 {
			wanted = a.held[at]
		}
	}
	addr, err := wanted, error(nil)
	switch {
	case !wanted.IsValid():
		addr, err = a.next(set)
	case !slices.Contains(a.held, wanted):
		err = a.takeThis(wanted)
	}
	if err == nil {
		a.given = append(a.given, addr)
	}
	return err
}

// quickTries bounds how many addresses that have a row are passed over before the table is
// read as a whole. Behind the cursor there is none, until the ranges have been gone through
// once.
const quickTries = 8

// next claims the address behind the one that was given last, or the next that has no row.
func (a *attempt) next(set Set) (netip.Addr, error) {
	network := a.who.Network
	if set.Size() == 0 {
		return netip.Addr{}, noneLeft(network, set)
	}
	cursor, err := a.Table.Cursor(network, set.First())
	if err != nil {
		return netip.Addr{}, err
	}
	addr := cursor
	for range quickTries {
		addr = set.After(addr)
		err := a.claimNew(set, addr)
		if !errors.Is(err, maps.ErrExists) {
			return addr, err
		}
	}
	return a.search(set, cursor)
}

// search reads the whole table: an address without a row is given first, then the one that
// was released longest ago.
func (a *attempt) search(set Set, from netip.Addr) (netip.Addr, error) {
	unlock, err := a.Lock()
	if err != nil {
		return netip.Addr{}, err
	}
	defer unlock()
	rows := map[netip.Addr]maps.Lease{}
	for l, err := range a.Table.Leases() {
		if err != nil {
			return netip.Addr{}, err
		}
		if l.Network == a.who.Network && set.Gives(l.Addr) {
			rows[l.Addr] = l
		}
	}
	for addr := from; uint64(len(rows)) < set.Size(); {
		addr = set.After(addr)
		if _, known := rows[addr]; known {
			continue
		}
		err := a.claimNew(set, addr)
		if !errors.Is(err, maps.ErrExists) {
			return addr, err
		}
		rows[addr] = maps.Lease{State: maps.AddressHeld}
	}
	oldest, err := a.oldest(set, rows)
	if err != nil {
		return netip.Addr{}, err
	}
	return oldest.Addr, a.change(oldest)
}

// oldest is the lease that was released longest ago and has cooled down.
func (a *attempt) oldest(set Set, rows map[netip.Addr]maps.Lease) (maps.Lease, error) {
	var oldest maps.Lease
	for _, l := range rows {
		if l.State == maps.AddressReleased && (oldest.State == 0 || l.Since < oldest.Since) {
			oldest = l
		}
	}
	switch {
	case oldest.State == 0:
		return oldest, noneLeft(a.who.Network, set)
	case !a.cool(oldest):
		wait := (oldest.Since + a.CoolDown - a.Now()).Round(time.Second / 10)
		return oldest, fmt.Errorf("%w in %s of network %s: the first was released less than %s ago, %s are left",
			ErrCooling, set, a.who.Network, a.CoolDown, wait)
	}
	return oldest, nil
}

func noneLeft(network string, set Set) error {
	if set.Size() == 0 {
		return fmt.Errorf("%w in %s of network %s: all are reserved; give the network another range or reserve less", ErrNoneLeft, set, network)
	}
	return fmt.Errorf("%w in %s of network %s: all %d are held; delete pods or give the network another range", ErrNoneLeft, set, network, set.Size())
}

// claimNew claims an address that has no row, and moves the cursor; ErrExists if it has one.
func (a *attempt) claimNew(set Set, addr netip.Addr) error {
	if err := a.claim(addr); err != nil {
		return err
	}
	return a.Table.SetCursor(a.who.Network, set.First(), addr, a.Now())
}

// takeThis takes an address that is asked for: a new one, or one that was released, however
// lately.
func (a *attempt) takeThis(addr netip.Addr) error {
	err := a.claim(addr)
	if !errors.Is(err, maps.ErrExists) {
		return err
	}
	unlock, err := a.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	l, err := a.Table.Get(a.who.Network, addr)
	switch {
	case errors.Is(err, maps.ErrNotFound): // pruned meanwhile
		return a.claim(addr)
	case err != nil:
		return err
	case l.State == maps.AddressHeld && l.Owner != a.who.Owner:
		return HeldError{addr, l.Owner}
	}
	return a.change(l)
}

// claim writes the lease of an address that has no row; else ErrExists, and nothing of what
// is looked at first is written.
func (a *attempt) claim(addr netip.Addr) error {
	if _, err := a.Table.Get(a.who.Network, addr); err == nil {
		return maps.ErrExists
	} else if !errors.Is(err, maps.ErrNotFound) {
		return err
	}
	if err := a.intend(addr); err != nil {
		return err
	}
	if err := a.Table.Claim(a.lease(addr)); err != nil {
		return err
	}
	a.undo = append(a.undo, func() error { return a.Table.Delete(a.who.Network, addr) })
	return nil
}

// change takes a row that another attachment had. The caller holds the lock.
func (a *attempt) change(was maps.Lease) error {
	if err := a.intend(was.Addr); err != nil {
		return err
	}
	if err := a.Table.Change(a.lease(was.Addr)); err != nil {
		return err
	}
	a.undo = append(a.undo, func() error { return a.Table.Change(was) })
	return nil
}

func (a *attempt) lease(addr netip.Addr) maps.Lease {
	return maps.Lease{Addr: addr, Owner: a.who.Owner, State: maps.AddressHeld, Since: a.Now()}
}

// intend writes into the attachment's row what it has, and what it is about to claim.
func (a *attempt) intend(addr netip.Addr) error {
	addrs := slices.Clone(a.held)
	for _, more := range append(slices.Clone(a.given), addr) {
		if !slices.Contains(addrs, more) {
			addrs = append(addrs, more)
		}
	}
	return a.write(addrs)
}

func (a *attempt) write(addrs []netip.Addr) error {
	row := a.who
	row.Addrs, row.Since = addrs, a.Now()
	if err := a.Table.PutTenant(row); err != nil {
		return err
	}
	a.row = row
	return nil
}

// commit leaves the attachment with what it was given: what it had besides, as of ranges that
// the configuration has no more, goes back.
func (a *attempt) commit() error {
	for _, addr := range a.held {
		if !slices.Contains(a.given, addr) {
			if err := a.release(a.who.Owner, addr); err != nil {
				return err
			}
		}
	}
	if slices.Equal(a.row.Addrs, a.given) && a.row.Netns == a.who.Netns && a.row.NetnsPath == a.who.NetnsPath {
		return nil
	}
	return a.write(a.given)
}

// rollBack takes back what was claimed, the last first.
func (a *attempt) rollBack() error {
	var errs []error
	for _, undo := range slices.Backward(a.undo) {
		errs = append(errs, undo())
	}
	if a.had {
		errs = append(errs, a.write(a.held))
	} else {
		errs = append(errs, a.Table.DeleteTenant(a.who.Owner))
	}
	return errors.Join(errs...)
}
