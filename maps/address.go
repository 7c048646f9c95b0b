// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// MaxOwnerAddrs is how many addresses one attachment may have of culvert-ipam.
const MaxOwnerAddrs = len(bpf.DatapathAddress{}.Addrs)

// AddressState is enum address_state.
type AddressState uint32

const (
	AddressHeld     = AddressState(bpf.DatapathAddressStateADDRESS_HELD)
	AddressReleased = AddressState(bpf.DatapathAddressStateADDRESS_RELEASED)
)

func (s AddressState) String() string {
	return name(s, map[AddressState]string{AddressHeld: "held", AddressReleased: "released"})
}

// Lease is a row of addresses about an address of one network: who has it, or had it last.
type Lease struct {
	Addr netip.Addr
	Owner
	State AddressState
	Since time.Duration // CLOCK_MONOTONIC
}

// Tenant is a row of addresses about an attachment. An address in it is the attachment's
// only if its lease says so: who is about to claim one writes it here first.
type Tenant struct {
	Owner
	Addrs     []netip.Addr // at most MaxOwnerAddrs
	Netns     uint64       // inode; 0: not known
	NetnsPath string       // CNI_NETNS as ADD got it, at most 127 bytes
	Since     time.Duration
}

// Addresses is the table addresses, culvert-ipam's own. Set does not open it: pods run
// without.
type Addresses struct {
	rows table[bpf.DatapathAddressKey, bpf.DatapathAddress]
}

// OpenAddresses opens the table pinned in dir. One that is not there is an error that wraps
// fs.ErrNotExist.
func OpenAddresses(dir string) (*Addresses, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, bpf.DatapathMapAddresses), nil)
	if err != nil {
		return nil, fmt.Errorf("open map %s in %s: %w", bpf.DatapathMapAddresses, dir, err)
	}
	return &Addresses{table[bpf.DatapathAddressKey, bpf.DatapathAddress]{m}}, nil
}

// Close releases the descriptor.
func (t *Addresses) Close() error { return t.rows.m.Close() }

// Capacity is how many rows there is room for.
func (t *Addresses) Capacity() int { return int(t.rows.m.MaxEntries()) }

// Claim writes a lease only if the address has no row; else ErrExists.
func (t *Addresses) Claim(l Lease) error { return t.putLease("claim", l, ebpf.UpdateNoExist) }

// Change writes a lease only if the address has a row; else ErrNotFound. Whose it is must
// be known.
func (t *Addresses) Change(l Lease) error { return t.putLease("change", l, ebpf.UpdateExist) }

func (t *Addresses) putLease(verb string, l Lease, flags ebpf.MapUpdateFlags) error {
	key, err := addressKey(l.Network, l.Addr, bpf.DatapathAddressKindADDRESS_LEASE)
	value := bpf.DatapathAddress{SinceNs: uint64(l.Since), State: bpf.DatapathAddressState(l.State)}
	switch {
	case err != nil:
	case !fromAddr(key.Addr).IsValid():
		err = errors.New("no address")
	default:
		err = putNames(&value, l.Owner)
	}
	if err == nil {
		err = t.rows.put(&key, &value, flags)
	}
	if err != nil {
		return fmt.Errorf("%s address %s of network %s: %w", verb, l.Addr, l.Network, err)
	}
	return nil
}

// Get reads a lease; ErrNotFound if the address has no row.
func (t *Addresses) Get(network string, addr netip.Addr) (Lease, error) {
	key, err := addressKey(network, addr, bpf.DatapathAddressKindADDRESS_LEASE)
	var value bpf.DatapathAddress
	if err == nil {
		value, err = t.rows.get(&key)
	}
	if err != nil {
		return Lease{}, fmt.Errorf("read address %s of network %s: %w", addr, network, err)
	}
	return decodeLease(&key, &value), nil
}

// Delete takes the row of an address away; it is no error that there is none. Whose it is
// must be known.
func (t *Addresses) Delete(network string, addr netip.Addr) error {
	key, err := addressKey(network, addr, bpf.DatapathAddressKindADDRESS_LEASE)
	if err == nil {
		err = t.rows.delete(&key)
	}
	if err != nil {
		return fmt.Errorf("delete address %s of network %s: %w", addr, network, err)
	}
	return nil
}

// Leases reads every lease of every network, in no order.
func (t *Addresses) Leases() iter.Seq2[Lease, error] {
	return ofKind(t, bpf.DatapathAddressKindADDRESS_LEASE, decodeLease)
}

// Tenants reads every attachment's row, of every network, in no order.
func (t *Addresses) Tenants() iter.Seq2[Tenant, error] {
	return ofKind(t, bpf.DatapathAddressKindADDRESS_OWNER, decodeTenant)
}

func ofKind[T any](t *Addresses, kind bpf.DatapathAddressKind, decode func(*bpf.DatapathAddressKey, *bpf.DatapathAddress) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range t.rows.all() {
			var row T
			switch {
			case err != nil:
				err = fmt.Errorf("read addresses: %w", err)
			case r.key.Kind != kind:
				continue
			default:
				row = decode(&r.key, &r.value)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// PutTenant writes the row of an attachment, in the place of one that may be there.
func (t *Addresses) PutTenant(o Tenant) error {
	key, err := ownerKey(o.Owner)
	value := bpf.DatapathAddress{SinceNs: uint64(o.Since), Netns: o.Netns}
	if len(o.Addrs) > MaxOwnerAddrs {
		err = fmt.Errorf("%d addresses, at most %d fit", len(o.Addrs), MaxOwnerAddrs)
	}
	if err == nil {
		err = errors.Join(putNames(&value, o.Owner), putText(value.NetnsPath[:], "netns path", o.NetnsPath))
	}
	if err == nil {
		for i, a := range o.Addrs {
			value.Addrs[i] = toAddr(a)
		}
		err = t.rows.put(&key, &value, ebpf.UpdateAny)
	}
	if err != nil {
		return fmt.Errorf("write addresses of %s: %w", o.Owner, err)
	}
	return nil
}

// Tenant reads the row of an attachment; ErrNotFound if it has none.
func (t *Addresses) Tenant(o Owner) (Tenant, error) {
	key, err := ownerKey(o)
	var value bpf.DatapathAddress
	if err == nil {
		value, err = t.rows.get(&key)
	}
	if err == nil && decodeTenant(&key, &value).Owner != o {
		err = ErrNotFound // a hash of 16 bytes: it does not happen
	}
	if err != nil {
		return Tenant{}, fmt.Errorf("read addresses of %s: %w", o, err)
	}
	return decodeTenant(&key, &value), nil
}

// DeleteTenant takes the row of an attachment away; it is no error that there is none.
func (t *Addresses) DeleteTenant(o Owner) error {
	key, err := ownerKey(o)
	if err == nil {
		err = t.rows.delete(&key)
	}
	if err != nil {
		return fmt.Errorf("delete addresses of %s: %w", o, err)
	}
	return nil
}

// Cursor is the address that was given last of the set of ranges that begins with first;
// the zero Addr if none was.
func (t *Addresses) Cursor(network string, first netip.Addr) (netip.Addr, error) {
	key, err := addressKey(network, first, bpf.DatapathAddressKindADDRESS_CURSOR)
	var value bpf.DatapathAddress
	if err == nil {
		value, err = t.rows.get(&key)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return netip.Addr{}, fmt.Errorf("read cursor of network %s: %w", network, err)
	}
	return fromAddr(value.Addrs[0]), nil
}

// SetCursor writes what Cursor reads.
func (t *Addresses) SetCursor(network string, first, last netip.Addr, now time.Duration) error {
	key, err := addressKey(network, first, bpf.DatapathAddressKindADDRESS_CURSOR)
	value := bpf.DatapathAddress{SinceNs: uint64(now)}
	value.Addrs[0] = toAddr(last)
	if err == nil {
		err = t.rows.put(&key, &value, ebpf.UpdateAny)
	}
	if err != nil {
		return fmt.Errorf("write cursor of network %s: %w", network, err)
	}
	return nil
}

// Rebuilt says whether the pods that lived when the table was made have their leases.
func (t *Addresses) Rebuilt() (bool, error) {
	key := bpf.DatapathAddressKey{Kind: bpf.DatapathAddressKindADDRESS_REBUILT}
	_, err := t.rows.get(&key)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether addresses are rebuilt: %w", err)
	}
	return true, nil
}

// SetRebuilt has Rebuilt say so from now on.
func (t *Addresses) SetRebuilt(now time.Duration) error {
	key := bpf.DatapathAddressKey{Kind: bpf.DatapathAddressKindADDRESS_REBUILT}
	value := bpf.DatapathAddress{SinceNs: uint64(now)}
	if err := t.rows.put(&key, &value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write that addresses are rebuilt: %w", err)
	}
	return nil
}

func addressKey(network string, addr netip.Addr, kind bpf.DatapathAddressKind) (bpf.DatapathAddressKey, error) {
	key := bpf.DatapathAddressKey{Addr: toAddr(addr), Kind: kind}
	return key, putText(key.Network[:], "network", network)
}

// ownerKey tells attachments of a network apart by a hash: their names would make every
// key three times as long.
func ownerKey(o Owner) (bpf.DatapathAddressKey, error) {
	key := bpf.DatapathAddressKey{Kind: bpf.DatapathAddressKindADDRESS_OWNER}
	sum := sha256.Sum256([]byte(o.Container + "\x00" + o.IfName))
	copy(key.Addr.Ip[:], sum[:])
	return key, putText(key.Network[:], "network", o.Network)
}

func putNames(value *bpf.DatapathAddress, o Owner) error {
	return errors.Join(
		putText(value.Container[:], "container", o.Container),
		putText(value.Ifname[:], "interface name", o.IfName),
	)
}

func ownerOf(key *bpf.DatapathAddressKey, value *bpf.DatapathAddress) Owner {
	return Owner{
		Network:   fromText(key.Network[:]),
		Container: fromText(value.Container[:]),
		IfName:    fromText(value.Ifname[:]),
	}
}

func decodeLease(key *bpf.DatapathAddressKey, value *bpf.DatapathAddress) Lease {
	return Lease{
		Addr:  fromAddr(key.Addr),
		Owner: ownerOf(key, value),
		State: AddressState(value.State),
		Since: time.Duration(value.SinceNs),
	}
}

func decodeTenant(key *bpf.DatapathAddressKey, value *bpf.DatapathAddress) Tenant {
	o := Tenant{
		Owner:     ownerOf(key, value),
		Netns:     value.Netns,
		NetnsPath: fromText(value.NetnsPath[:]),
		Since:     time.Duration(value.SinceNs),
	}
	for _, a := range value.Addrs {
		if addr := fromAddr(a); addr.IsValid() {
			o.Addrs = append(o.Addrs, addr)
		}
	}
	return o
}
