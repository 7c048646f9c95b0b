// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// Owner is what CNI calls an attachment by; every delete compares it.
type Owner struct {
	Network   string // name of the network, at most 63 bytes
	Container string // CNI_CONTAINERID, at most 127 bytes
	IfName    string // CNI_IFNAME, at most 15 bytes
}

func (o Owner) String() string {
	return fmt.Sprintf("container %s, interface %s, network %s", o.Container, o.IfName, o.Network)
}

// Iface is a row of ifaces: the attachment that owns a veth.
type Iface struct {
	Ifindex int // host side
	Owner
	Generation uint64
	Netns      uint64 // inode of the container's network namespace
	NetnsPath  string // CNI_NETNS as ADD got it, at most 127 bytes
	HostIfName string
	Addrs      []netip.Addr // at most 8
	Flags      PodFlags
	MTU        int
}

// Ifaces is the table ifaces.
type Ifaces struct {
	rows table[bpf.DatapathIfaceKey, bpf.DatapathIface]
}

// Put writes the row of i.Ifindex, in the place of one that may be there. Text that
// does not fit is an error that names the field.
func (t *Ifaces) Put(i Iface) error { return t.put(i, ebpf.UpdateAny) }

// Change writes the row of i.Ifindex if there is one, else it is ErrNotFound. Whose row
// it is must be known.
func (t *Ifaces) Change(i Iface) error { return t.put(i, ebpf.UpdateExist) }

func (t *Ifaces) put(i Iface, flags ebpf.MapUpdateFlags) error {
	key, value, err := encodeIface(i)
	if err == nil {
		err = t.rows.put(&key, &value, flags)
	}
	if err != nil {
		return fmt.Errorf("write iface %d: %w", i.Ifindex, err)
	}
	return nil
}

// Get reads the row of a host side; ErrNotFound if it is not ours.
func (t *Ifaces) Get(ifindex int) (Iface, error) {
	key := bpf.DatapathIfaceKey{Ifindex: uint32(ifindex)}
	value, err := t.rows.get(&key)
	if err != nil {
		return Iface{}, fmt.Errorf("read iface %d: %w", ifindex, err)
	}
	return decodeIface(&key, &value), nil
}

// Find looks an attachment up by its owner, by a walk over the table; ErrNotFound if
// there is none. Where a crash left two rows, the younger one is given.
func (t *Ifaces) Find(owner Owner) (Iface, error) {
	var found Iface
	for i, err := range t.All() {
		if err != nil {
			return Iface{}, err
		}
		if i.Owner == owner && i.Generation > found.Generation {
			found = i
		}
	}
	if found.Generation == 0 {
		return Iface{}, fmt.Errorf("find iface of %s: %w", owner, ErrNotFound)
	}
	return found, nil
}

// Delete takes the row of a host side away; it is no error that there is none.
func (t *Ifaces) Delete(ifindex int) error {
	key := bpf.DatapathIfaceKey{Ifindex: uint32(ifindex)}
	if err := t.rows.delete(&key); err != nil {
		return fmt.Errorf("delete iface %d: %w", ifindex, err)
	}
	return nil
}

// All reads every row, in no order.
func (t *Ifaces) All() iter.Seq2[Iface, error] { return typed(t.rows, "ifaces", decodeIface) }

func encodeIface(i Iface) (bpf.DatapathIfaceKey, bpf.DatapathIface, error) {
	key := bpf.DatapathIfaceKey{Ifindex: uint32(i.Ifindex)}
	value := bpf.DatapathIface{
		Generation: i.Generation,
		Netns:      i.Netns,
		Flags:      bpf.DatapathPodFlag(i.Flags),
		Mtu:        uint32(i.MTU),
	}
	if i.Ifindex <= 0 {
		return key, value, errors.New("no ifindex")
	}
	if i.Generation == 0 {
		return key, value, errors.New("generation is 0")
	}
	if len(i.Addrs) > len(value.Addrs) {
		return key, value, fmt.Errorf("%d addresses, at most %d fit", len(i.Addrs), len(value.Addrs))
	}
	for n, a := range i.Addrs {
		value.Addrs[n] = toAddr(a)
	}
	return key, value, errors.Join(
		putText(value.Network[:], "network", i.Network),
		putText(value.Container[:], "container", i.Container),
		putText(value.Ifname[:], "interface name", i.IfName),
		putText(value.HostIfname[:], "host interface name", i.HostIfName),
		putText(value.NetnsPath[:], "netns path", i.NetnsPath),
	)
}

func decodeIface(key *bpf.DatapathIfaceKey, value *bpf.DatapathIface) Iface {
	i := Iface{
		Ifindex: int(key.Ifindex),
		Owner: Owner{
			Network:   fromText(value.Network[:]),
			Container: fromText(value.Container[:]),
			IfName:    fromText(value.Ifname[:]),
		},
		Generation: value.Generation,
		Netns:      value.Netns,
		NetnsPath:  fromText(value.NetnsPath[:]),
		HostIfName: fromText(value.HostIfname[:]),
		Flags:      PodFlags(value.Flags),
		MTU:        int(value.Mtu),
	}
	for _, a := range value.Addrs {
		if addr := fromAddr(a); addr.IsValid() {
			i.Addrs = append(i.Addrs, addr)
		}
	}
	return i
}
