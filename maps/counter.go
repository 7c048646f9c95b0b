// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"iter"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// Hook is enum hook: the program that dropped. DropReason is enum drop_reason.
type (
	Hook       uint16
	DropReason uint16
)

// Counter is a row of counters, summed over the CPUs: packets dropped.
type Counter struct {
	Ifindex        int // the pod's host side, else the device the packet was on
	Hook           Hook
	Reason         DropReason
	Packets, Bytes uint64
}

// Counters is the table counters. The datapath writes it.
type Counters struct{ m *ebpf.Map }

// All reads every row, in no order.
func (t *Counters) All() iter.Seq2[Counter, error] {
	return func(yield func(Counter, error) bool) {
		var key bpf.DatapathCounterKey
		var cpus []bpf.DatapathCounter
		rows := t.m.Iterate()
		for rows.Next(&key, &cpus) {
			c := Counter{Ifindex: int(key.Ifindex), Hook: Hook(key.Hook), Reason: DropReason(key.Reason)}
			for _, cpu := range cpus {
				c.Packets += cpu.Packets
				c.Bytes += cpu.Bytes
			}
			if !yield(c, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Counter{}, fmt.Errorf("read counters: %w", err))
		}
	}
}

// DeleteIfindex takes away every row of a device: one call a hook and reason, so that
// the time does not grow with the table. It is no error that there is none.
func (t *Counters) DeleteIfindex(ifindex int) error {
	key := bpf.DatapathCounterKey{Ifindex: uint32(ifindex)}
	for hook := bpf.DatapathHookHOOK_FROM_POD; hook < bpf.DatapathHookHOOK_MAX; hook++ {
		for reason := range bpf.DatapathDropReasonDROP_REASON_MAX {
			key.Hook, key.Reason = hook, reason
			if err := t.m.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("delete counters of iface %d: %w", ifindex, err)
			}
		}
	}
	return nil
}

func (h Hook) String() string {
	return name(h, map[Hook]string{
		Hook(bpf.DatapathHookHOOK_FROM_POD):    "from_pod",
		Hook(bpf.DatapathHookHOOK_TO_POD):      "to_pod",
		Hook(bpf.DatapathHookHOOK_FROM_UPLINK): "from_uplink",
		Hook(bpf.DatapathHookHOOK_TO_UPLINK):   "to_uplink",
		Hook(bpf.DatapathHookHOOK_FROM_HOST):   "from_host",
		Hook(bpf.DatapathHookHOOK_FROM_TUNNEL): "from_tunnel",
		Hook(bpf.DatapathHookHOOK_TO_TUNNEL):   "to_tunnel",
	})
}

func (r DropReason) String() string {
	return name(r, map[DropReason]string{
		DropReason(bpf.DatapathDropReasonDROP_SOURCE):          "source",
		DropReason(bpf.DatapathDropReasonDROP_LOOPBACK):        "loopback",
		DropReason(bpf.DatapathDropReasonDROP_EGRESS_LIMIT):    "egress_limit",
		DropReason(bpf.DatapathDropReasonDROP_PORTS_EXHAUSTED): "ports_exhausted",
		DropReason(bpf.DatapathDropReasonDROP_TOO_BIG):         "too_big",
		DropReason(bpf.DatapathDropReasonDROP_NO_ROOM):         "no_room",
		DropReason(bpf.DatapathDropReasonDROP_FRAGMENT_ORDER):  "fragment_order",
		DropReason(bpf.DatapathDropReasonDROP_NO_ADDRESS):      "no_address",
		DropReason(bpf.DatapathDropReasonDROP_TUNNEL_SOURCE):   "tunnel_source",
		DropReason(bpf.DatapathDropReasonDROP_NO_REMOTE):       "no_remote",
	})
}
