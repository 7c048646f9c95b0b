// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"iter"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// Direction is enum direction, in CNI's words: seen from the pod.
type Direction uint32

const (
	Ingress = Direction(bpf.DatapathDirectionTO_POD)
	Egress  = Direction(bpf.DatapathDirectionFROM_POD)
)

// Limit is a row of limits: what one direction of a pod is held to.
type Limit struct {
	Ifindex   int // host side of the veth
	Direction Direction
	Rate      uint64 // bit/s; 0: the limit that there was has been lifted
	Burst     uint64 // bit, after the cap
	Shaper    Shaper
}

// Shaper is enum shaper: the qdisc that holds the rate.
type Shaper uint32

// The kinds of shaper.
const (
	ShaperTBF        = Shaper(bpf.DatapathShaperSHAPER_TBF)
	ShaperTBFFqCodel = Shaper(bpf.DatapathShaperSHAPER_TBF_FQ_CODEL)
)

// Limits is the table limits.
type Limits struct {
	rows table[bpf.DatapathLimitKey, bpf.DatapathLimit]
}

// Put writes the row, in the place of one that may be there; its clock starts anew.
func (t *Limits) Put(l Limit) error {
	key := bpf.DatapathLimitKey{Ifindex: uint32(l.Ifindex), Direction: bpf.DatapathDirection(l.Direction)}
	value := bpf.DatapathLimit{RateBits: l.Rate, BurstBits: l.Burst, Shaper: bpf.DatapathShaper(l.Shaper)}
	if err := t.rows.put(&key, &value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write %s limit of iface %d: %w", l.Direction, l.Ifindex, err)
	}
	return nil
}

// Get reads a row; ErrNotFound if that direction has no limit.
func (t *Limits) Get(ifindex int, d Direction) (Limit, error) {
	key := bpf.DatapathLimitKey{Ifindex: uint32(ifindex), Direction: bpf.DatapathDirection(d)}
	value, err := t.rows.get(&key)
	if err != nil {
		return Limit{}, fmt.Errorf("read %s limit of iface %d: %w", d, ifindex, err)
	}
	return decodeLimit(&key, &value), nil
}

// Delete takes a row away; it is no error that there is none.
func (t *Limits) Delete(ifindex int, d Direction) error {
	key := bpf.DatapathLimitKey{Ifindex: uint32(ifindex), Direction: bpf.DatapathDirection(d)}
	if err := t.rows.delete(&key); err != nil {
		return fmt.Errorf("delete %s limit of iface %d: %w", d, ifindex, err)
	}
	return nil
}

// All reads every row, in no order.
func (t *Limits) All() iter.Seq2[Limit, error] { return typed(t.rows, "limits", decodeLimit) }

func decodeLimit(key *bpf.DatapathLimitKey, value *bpf.DatapathLimit) Limit {
	return Limit{
		Ifindex:   int(key.Ifindex),
		Direction: Direction(key.Direction),
		Rate:      value.RateBits,
		Burst:     value.BurstBits,
		Shaper:    Shaper(value.Shaper),
	}
}
