// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// PodFlags are the bits of enum pod_flag.
type PodFlags uint32

const (
	PodSourceCheck  = PodFlags(bpf.DatapathPodFlagPOD_SOURCE_CHECK)
	PodLimitIngress = PodFlags(bpf.DatapathPodFlagPOD_LIMIT_INGRESS)
	PodLimitEgress  = PodFlags(bpf.DatapathPodFlagPOD_LIMIT_EGRESS)
	PodMasquerade   = PodFlags(bpf.DatapathPodFlagPOD_MASQUERADE)
	PodChained      = PodFlags(bpf.DatapathPodFlagPOD_CHAINED)
	// PodOwnClsact says, in ifaces, that the clsact qdisc of a chained pod's veth is ours.
	// No program looks at it.
	PodOwnClsact PodFlags = 1 << 15
)

// Pod is a row of pods: one address of an attachment. The rows of one attachment share
// everything but the address.
type Pod struct {
	Addr netip.Addr
	// Generation names the attachment: CLOCK_BOOTTIME of its ADD in ns, never 0. Rows
	// of flows and hostports that carry another one are dead.
	Generation uint64
	Ifindex    int // host side of the veth
	Flags      PodFlags
	// Netns is the inode of the container's network namespace; the row keeps its low
	// 32 bits, which is all that the kernel gives out.
	Netns   uint64
	MTU     int
	MAC     net.HardwareAddr // the pod's interface, 6 bytes
	HostMAC net.HardwareAddr // the host side, 6 bytes
}

// Pods is the table pods.
type Pods struct {
	rows table[bpf.DatapathPodKey, bpf.DatapathPod]
}

// Put writes the row of p.Addr, in the place of one that may be there.
func (t *Pods) Put(p Pod) error { return t.put(p, ebpf.UpdateAny) }

// Change writes the row of p.Addr if there is one, else it is ErrNotFound: a pod that
// went meanwhile does not come back. Whose row it is must be known.
func (t *Pods) Change(p Pod) error { return t.put(p, ebpf.UpdateExist) }

func (t *Pods) put(p Pod, flags ebpf.MapUpdateFlags) error {
	key, value, err := encodePod(p)
	if err == nil {
		err = t.rows.put(&key, &value, flags)
	}
	if err != nil {
		return fmt.Errorf("write pod %s: %w", p.Addr, err)
	}
	return nil
}

// Get reads the row of an address; ErrNotFound if no pod has it.
func (t *Pods) Get(addr netip.Addr) (Pod, error) {
	key := bpf.DatapathPodKey{Addr: toAddr(addr)}
	value, err := t.rows.get(&key)
	if err != nil {
		return Pod{}, fmt.Errorf("read pod %s: %w", addr, err)
	}
	return decodePod(&key, &value), nil
}

// Delete takes the row of an address away; it is no error that there is none. Whose
// row it is must be known: compare the generation first.
func (t *Pods) Delete(addr netip.Addr) error {
	key := bpf.DatapathPodKey{Addr: toAddr(addr)}
	if err := t.rows.delete(&key); err != nil {
		return fmt.Errorf("delete pod %s: %w", addr, err)
	}
	return nil
}

// All reads every row, in no order.
func (t *Pods) All() iter.Seq2[Pod, error] { return typed(t.rows, "pods", decodePod) }

func encodePod(p Pod) (bpf.DatapathPodKey, bpf.DatapathPod, error) {
	key := bpf.DatapathPodKey{Addr: toAddr(p.Addr)}
	value := bpf.DatapathPod{
		Generation: p.Generation,
		Ifindex:    uint32(p.Ifindex),
		Flags:      bpf.DatapathPodFlag(p.Flags),
		Netns:      uint32(p.Netns),
		Mtu:        uint32(p.MTU),
	}
	switch {
	case key == bpf.DatapathPodKey{}:
		return key, value, errors.New("no address")
	case p.Generation == 0:
		return key, value, errors.New("generation is 0")
	case len(p.MAC) != len(value.Mac):
		return key, value, fmt.Errorf("mac %q has not 6 bytes", p.MAC)
	case len(p.HostMAC) != len(value.HostMac):
		return key, value, fmt.Errorf("host mac %q has not 6 bytes", p.HostMAC)
	}
	copy(value.Mac[:], p.MAC)
	copy(value.HostMac[:], p.HostMAC)
	return key, value, nil
}

func decodePod(key *bpf.DatapathPodKey, value *bpf.DatapathPod) Pod {
	return Pod{
		Addr:       fromAddr(key.Addr),
		Generation: value.Generation,
		Ifindex:    int(value.Ifindex),
		Flags:      PodFlags(value.Flags),
		Netns:      uint64(value.Netns),
		MTU:        int(value.Mtu),
		MAC:        append(net.HardwareAddr{}, value.Mac[:]...),
		HostMAC:    append(net.HardwareAddr{}, value.HostMac[:]...),
	}
}
