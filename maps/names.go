// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"strings"

	"github.com/culvert-cni/culvert/bpf"
)

func (d Direction) String() string {
	return name(d, map[Direction]string{Ingress: "ingress", Egress: "egress"})
}

func (s Shaper) String() string {
	return name(s, map[Shaper]string{ShaperTBF: "tbf", ShaperTBFFqCodel: "tbf_fq_codel"})
}

func (s Side) String() string {
	return name(s, map[Side]string{
		Side(bpf.DatapathSideSIDE_FAST):  "fast",
		Side(bpf.DatapathSideSIDE_STACK): "stack",
		Side(bpf.DatapathSideSIDE_WIRE):  "wire",
	})
}

func (a FlowAction) String() string {
	return name(a, map[FlowAction]string{
		FlowToPod: "to_pod", FlowToWire: "to_wire", FlowToHost: "to_host", FlowToStack: "to_stack",
	})
}

// Names gives the bits that are set, in the order of their values.
func (f PodFlags) Names() []string {
	return bits(f, []string{"source_check", "limit_ingress", "limit_egress", "masquerade", "chained"})
}

// Names gives the bits that are set, in the order of their values.
func (f FlowFlags) Names() []string {
	return bits(f, []string{"translate", "reply", "hostport", "masquerade"})
}

// Names gives the bits that are set, in the order of their values.
func (s FlowState) Names() []string {
	return bits(s, []string{"answered", "fin_self", "fin_peer", "reset", "tcp_mid", "reopened"})
}

// Names gives the bits that are set, in the order of their values.
func (f Features) Names() []string {
	return bits(f, []string{"conntrack", "tcx", "shared_ports", "fq_codel", "tbf"})
}

func (f PodFlags) String() string  { return strings.Join(f.Names(), ",") }
func (f FlowFlags) String() string { return strings.Join(f.Names(), ",") }
func (s FlowState) String() string { return strings.Join(s.Names(), ",") }
func (f Features) String() string  { return strings.Join(f.Names(), ",") }

// ProtoName gives the name of an IP protocol as ss and conntrack print it, or its
// number.
func ProtoName(proto uint8) string {
	return name(proto, map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"})
}

type integer interface{ ~uint8 | ~uint16 | ~uint32 }

// name looks a value up and falls back to its number.
func name[T integer](value T, names map[T]string) string {
	if s, ok := names[value]; ok {
		return s
	}
	return fmt.Sprintf("%d", uint32(value))
}

// bits names the bits from the lowest up; one that has no name shows as a number.
func bits[T integer](value T, names []string) []string {
	set := []string{}
	for i := 0; value>>i != 0; i++ {
		switch {
		case value>>i&1 == 0:
		case i < len(names):
			set = append(set, names[i])
		default:
			set = append(set, fmt.Sprintf("bit%d", i))
		}
	}
	return set
}
