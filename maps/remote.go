// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
)

// RemoteKind is enum remote_kind: the way to another node's addresses.
type RemoteKind uint32

const (
	RemoteDirect = RemoteKind(bpf.DatapathRemoteKindREMOTE_DIRECT) // its next hop is on a subnet of ours
	RemoteTunnel = RemoteKind(bpf.DatapathRemoteKindREMOTE_TUNNEL)
	RemoteNode   = RemoteKind(bpf.DatapathRemoteKindREMOTE_NODE) // a node's own: only not masqueraded
)

// Remote is a row of remotes: a range of addresses that is another node's. The narrowest row
// around an address counts. Nothing to any of them is masqueraded.
type Remote struct {
	Prefix netip.Prefix // as ToCidr gives it
	Kind   RemoteKind
	// Endpoint is the node's address. What comes by the tunnel from the range must come from it.
	Endpoint netip.Addr
	// Local is the address of ours that the node takes our packets in the tunnel from; the zero
	// Addr leaves it to the routing table.
	Local   netip.Addr
	VNI     uint32
	Ifindex int // of the device to there, if it carries our programs: TCP takes the fast path; else 0
}

// Remotes is the table remotes. The agent writes it. Programs of an earlier build have none:
// then there are no rows, and Put fails with fs.ErrNotExist.
type Remotes struct {
	rows table[bpf.DatapathCidrKey, bpf.DatapathRemote]
}

// Put writes the row of r.Prefix, in the place of one that may be there.
func (t *Remotes) Put(r Remote) error {
	err := t.exists()
	var key bpf.DatapathCidrKey
	if err == nil {
		key, err = encodeCidrKey(r.Prefix)
	}
	if err == nil {
		value := bpf.DatapathRemote{
			Endpoint: toAddr(r.Endpoint), Local: toAddr(r.Local), Kind: bpf.DatapathRemoteKind(r.Kind),
			Vni: r.VNI, Ifindex: uint32(r.Ifindex),
		}
		err = t.rows.put(&key, &value, ebpf.UpdateAny)
	}
	if errors.Is(err, unix.ENOSPC) { // what the kernel says of full tries
		err = t.rows.full()
	}
	if err != nil {
		return fmt.Errorf("write remotes %s: %w", r.Prefix, err)
	}
	return nil
}

// Delete takes the row of a range away; it is no error that there is none.
func (t *Remotes) Delete(p netip.Prefix) error {
	if t.rows.m == nil {
		return nil
	}
	key, err := encodeCidrKey(p)
	if err == nil {
		err = t.rows.delete(&key)
	}
	if err != nil {
		return fmt.Errorf("delete remotes %s: %w", p, err)
	}
	return nil
}

// All reads every row, in no order.
func (t *Remotes) All() iter.Seq2[Remote, error] {
	if t.rows.m == nil {
		return func(func(Remote, error) bool) {}
	}
	return typed(t.rows, bpf.DatapathMapRemotes, decodeRemote)
}

func (t *Remotes) exists() error {
	if t.rows.m == nil {
		return fmt.Errorf("the programs that run know none: %w", fs.ErrNotExist)
	}
	return nil
}

func decodeRemote(key *bpf.DatapathCidrKey, value *bpf.DatapathRemote) Remote {
	return Remote{
		Prefix: fromCidrKey(key), Kind: RemoteKind(value.Kind),
		Endpoint: fromAddr(value.Endpoint), Local: fromAddr(value.Local),
		VNI: value.Vni, Ifindex: int(value.Ifindex),
	}
}

func (k RemoteKind) String() string {
	return name(k, map[RemoteKind]string{RemoteDirect: "direct", RemoteTunnel: "tunnel", RemoteNode: "node"})
}
