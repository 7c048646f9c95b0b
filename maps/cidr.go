// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
)

// MaxCidrNetworks is how many networks may name one range.
const MaxCidrNetworks = 8

// Cidr is a row of nonmasq or excluded: a range of addresses and the networks whose
// configuration names it. All is one batch lookup, which the kernel's LPM tries know
// since 5.13.
type Cidr struct {
	Prefix   netip.Prefix // as ToCidr gives it
	Networks []string     // in order, each once
}

// Cidrs is the table nonmasq, or excluded. A longest match gives the datapath a row; here
// rows are told apart by their whole range.
type Cidrs struct {
	rows table[bpf.DatapathCidrKey, bpf.DatapathCidr]
	name string
}

// Name is the table's, for messages.
func (t *Cidrs) Name() string { return t.name }

// Put writes the row of c.Prefix, in the place of one that may be there: one caller at a
// time. More networks than fit are an error that names the range.
func (t *Cidrs) Put(c Cidr) error {
	key, err := encodeCidrKey(c.Prefix)
	var value bpf.DatapathCidr
	if err == nil {
		value, err = encodeNetworks(c.Networks)
	}
	if err == nil {
		err = t.put(&key, &value)
	}
	if err != nil {
		return fmt.Errorf("write %s %s: %w", t.name, c.Prefix, err)
	}
	return nil
}

// put says of a full table what the kernel says otherwise of tries.
func (t *Cidrs) put(key *bpf.DatapathCidrKey, value *bpf.DatapathCidr) error {
	err := t.rows.put(key, value, ebpf.UpdateAny)
	if errors.Is(err, unix.ENOSPC) {
		return t.rows.full()
	}
	return err
}

// Get reads the row of exactly this range; ErrNotFound if there is none. A lookup in the
// kernel would give the row of a wider one too, and not say so: this is a walk.
func (t *Cidrs) Get(p netip.Prefix) (Cidr, error) {
	for c, err := range t.All() {
		if err != nil {
			return Cidr{}, err
		}
		if c.Prefix == p {
			return c, nil
		}
	}
	return Cidr{}, fmt.Errorf("read %s %s: %w", t.name, p, ErrNotFound)
}

// Delete takes the row of a range away; it is no error that there is none.
func (t *Cidrs) Delete(p netip.Prefix) error {
	key, err := encodeCidrKey(p)
	if err == nil {
		err = t.rows.delete(&key)
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", t.name, p, err)
	}
	return nil
}

// All reads every row, in no order.
func (t *Cidrs) All() iter.Seq2[Cidr, error] { return typed(t.rows, t.name, decodeCidr) }

// ToCidr gives the one spelling of a range: without host bits, and IPv4 as IPv4.
func ToCidr(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= mappedBits {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-mappedBits)
	}
	return p.Masked()
}

// mappedBits is the length of the prefix ::ffff:0:0 that IPv4 has in a row, versionBits
// that of the family before it.
const (
	mappedBits  = 96
	versionBits = 32
)

func encodeCidrKey(p netip.Prefix) (bpf.DatapathCidrKey, error) {
	if !p.IsValid() || ToCidr(p) != p {
		return bpf.DatapathCidrKey{}, errors.New("not a range without host bits")
	}
	bits, version := versionBits+p.Bits(), uint32(6)
	if p.Addr().Is4() {
		bits, version = bits+mappedBits, 4
	}
	return bpf.DatapathCidrKey{Prefix: uint32(bits), Version: version, Addr: p.Addr().As16()}, nil
}

// fromCidrKey is the reverse of encodeCidrKey.
func fromCidrKey(key *bpf.DatapathCidrKey) netip.Prefix {
	return ToCidr(netip.PrefixFrom(netip.AddrFrom16(key.Addr), int(key.Prefix)-versionBits))
}

func encodeNetworks(networks []string) (value bpf.DatapathCidr, err error) {
	networks = slices.Compact(slices.Sorted(slices.Values(networks)))
	if len(networks) == 0 {
		return value, errors.New("no network names it")
	}
	if len(networks) > len(value.Networks) {
		return value, fmt.Errorf("%d networks name it, at most %d can", len(networks), len(value.Networks))
	}
	for i, n := range networks {
		if n == "" {
			return value, errors.New("a network without a name")
		}
		if err := putText(value.Networks[i][:], "network", n); err != nil {
			return value, err
		}
	}
	return value, nil
}

func decodeCidr(key *bpf.DatapathCidrKey, value *bpf.DatapathCidr) Cidr {
	c := Cidr{Prefix: fromCidrKey(key)}
	for i := range value.Networks {
		if n := fromText(value.Networks[i][:]); n != "" {
			c.Networks = append(c.Networks, n)
		}
	}
	return c
}
