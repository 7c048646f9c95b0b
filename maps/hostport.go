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

// HostportKey is what a hostPort is called by from outside.
type HostportKey struct {
	Addr  netip.Addr // zero Addr: every local address of both families
	Port  uint16
	Proto uint8 // 6, 17 or 132
}

func (k HostportKey) String() string {
	at := fmt.Sprintf("*:%d", k.Port)
	if k.Addr.IsValid() {
		at = netip.AddrPortFrom(k.Addr, k.Port).String()
	}
	return fmt.Sprintf("hostPort %s/%s", at, ProtoName(k.Proto))
}

// Hostport is a row of hostports: where a hostPort leads.
type Hostport struct {
	Addr  netip.Addr // as in HostportKey
	Port  uint16
	Proto uint8
	// Pod4 and Pod6 are the pod's addresses, zero where the pod lacks the family or
	// the hostPort is not open in it.
	Pod4, Pod6 netip.Addr
	PodPort    uint16
	Generation uint64 // of the attachment that owns the row
	Ifindex    int    // likewise
	Loopback   bool   // answer on 127.0.0.1 and ::1 as well
}

// Key gives the part that the row is found by.
func (h Hostport) Key() HostportKey { return HostportKey{h.Addr, h.Port, h.Proto} }

// Hostports is the table hostports.
type Hostports struct {
	rows table[bpf.DatapathHostportKey, bpf.DatapathHostport]
}

// Claim writes the row only if nobody holds its key; else ErrExists.
func (t *Hostports) Claim(h Hostport) error { return t.write("claim", h, ebpf.UpdateNoExist) }

// Replace writes the row whoever holds its key: for a holder known to be dead. Two
// callers who replace one row each read it again to see who of them won.
func (t *Hostports) Replace(h Hostport) error { return t.write("replace", h, ebpf.UpdateAny) }

// Get reads a row; ErrNotFound if nobody holds the key. It does not fall back from an
// address to the wildcard.
func (t *Hostports) Get(addr netip.Addr, port uint16, proto uint8) (Hostport, error) {
	k := HostportKey{addr, port, proto}
	key := encodeHostportKey(k)
	value, err := t.rows.get(&key)
	if err != nil {
		return Hostport{}, fmt.Errorf("read %s: %w", k, err)
	}
	return decodeHostport(&key, &value), nil
}

// Delete takes a row away; it is no error that there is none. Whose row it is must be
// known: compare the generation first.
func (t *Hostports) Delete(k HostportKey) error {
	key := encodeHostportKey(k)
	if err := t.rows.delete(&key); err != nil {
		return fmt.Errorf("delete %s: %w", k, err)
	}
	return nil
}

// All reads every row, in no order.
func (t *Hostports) All() iter.Seq2[Hostport, error] {
	return typed(t.rows, "hostports", decodeHostport)
}

// Any says whether there is a row at all, by reading one batch.
func (t *Hostports) Any() (bool, error) {
	for _, err := range t.All() {
		return err == nil, err
	}
	return false, nil
}

func (t *Hostports) write(verb string, h Hostport, flags ebpf.MapUpdateFlags) error {
	if h.Port == 0 || h.PodPort == 0 || h.Proto == 0 || h.Generation == 0 {
		return fmt.Errorf("%s %s: %w", verb, h.Key(), errors.New("a port, the protocol or the generation is 0"))
	}
	key := encodeHostportKey(h.Key())
	value := bpf.DatapathHostport{
		Pod4:       toAddr(h.Pod4),
		Pod6:       toAddr(h.Pod6),
		Generation: h.Generation,
		Ifindex:    uint32(h.Ifindex),
		Port:       h.PodPort,
	}
	if h.Loopback {
		value.Flags |= bpf.DatapathHostportFlagHOSTPORT_LOOPBACK
	}
	if err := t.rows.put(&key, &value, flags); err != nil {
		return fmt.Errorf("%s %s: %w", verb, h.Key(), err)
	}
	return nil
}

func encodeHostportKey(k HostportKey) bpf.DatapathHostportKey {
	return bpf.DatapathHostportKey{Addr: toAddr(k.Addr), Port: k.Port, Proto: k.Proto}
}

func decodeHostport(key *bpf.DatapathHostportKey, value *bpf.DatapathHostport) Hostport {
	return Hostport{
		Addr:       fromAddr(key.Addr),
		Port:       key.Port,
		Proto:      key.Proto,
		Pod4:       fromAddr(value.Pod4),
		Pod6:       fromAddr(value.Pod6),
		PodPort:    value.Port,
		Generation: value.Generation,
		Ifindex:    int(value.Ifindex),
		Loopback:   value.Flags&bpf.DatapathHostportFlagHOSTPORT_LOOPBACK != 0,
	}
}
