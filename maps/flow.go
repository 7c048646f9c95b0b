// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"iter"
	"net/netip"
	"time"

	"github.com/culvert-cni/culvert/bpf"
)

// Enums of bpf/lib/types.h that a row of flows carries; names.go spells them.
type (
	Side       uint8
	FlowAction uint16
	FlowFlags  uint16
	FlowState  uint32
)

const (
	FlowToPod   = FlowAction(bpf.DatapathFlowActionFLOW_TO_POD)
	FlowToWire  = FlowAction(bpf.DatapathFlowActionFLOW_TO_WIRE)
	FlowToHost  = FlowAction(bpf.DatapathFlowActionFLOW_TO_HOST)
	FlowToStack = FlowAction(bpf.DatapathFlowActionFLOW_TO_STACK)
)

// Tuple is who speaks to whom. Echo requests have their identifier as port of Src,
// replies as port of Dst; protocols without ports have 0.
type Tuple struct {
	Src, Dst netip.AddrPort
	Proto    uint8
}

// Flow is a row of flows or halfopen: what becomes of the packets of one direction.
type Flow struct {
	Key    Tuple // the packet as it comes
	To     Tuple // as it leaves
	Side   Side
	Action FlowAction
	Flags  FlowFlags
	State  FlowState
	// SrcGeneration and DstGeneration are of the pods that send and receive, 0 where
	// that end is no pod of this node.
	SrcGeneration, DstGeneration uint64
	Seen                         time.Duration // CLOCK_MONOTONIC of a late packet, to the second
	HalfOpen                     bool          // from the table halfopen
}

// Flows is the table flows, or halfopen. The datapath alone writes them.
type Flows struct {
	rows     table[bpf.DatapathTuple, bpf.DatapathFlow]
	halfOpen bool
}

// All reads every row, the dead ones too, in no order.
func (t *Flows) All() iter.Seq2[Flow, error] {
	name := bpf.DatapathMapFlows
	if t.halfOpen {
		name = bpf.DatapathMapHalfopen
	}
	return typed(t.rows, name, t.decode)
}

func (t *Flows) decode(key *bpf.DatapathTuple, value *bpf.DatapathFlow) Flow {
	return Flow{
		Key: decodeTuple(key),
		To: Tuple{
			Src:   netip.AddrPortFrom(fromAddr(value.Src), value.Sport),
			Dst:   netip.AddrPortFrom(fromAddr(value.Dst), value.Dport),
			Proto: key.Proto,
		},
		Side:          Side(key.Side),
		Action:        FlowAction(value.Action),
		Flags:         FlowFlags(value.Flags),
		State:         FlowState(value.State),
		SrcGeneration: value.SrcGeneration,
		DstGeneration: value.DstGeneration,
		Seen:          time.Duration(value.SeenNs),
		HalfOpen:      t.halfOpen,
	}
}

func decodeTuple(t *bpf.DatapathTuple) Tuple {
	return Tuple{
		Src:   netip.AddrPortFrom(fromAddr(t.Src), t.Sport),
		Dst:   netip.AddrPortFrom(fromAddr(t.Dst), t.Dport),
		Proto: t.Proto,
	}
}
