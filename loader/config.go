// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// variables are the values of every `volatile const` in bpf/lib/config.h, which says
// what they mean. A test fails on one that is missing here. Times are those of
// netfilter's conntrack: a flow lives as long beside it as in it.
func variables(k kernelHas, clock bpf.Clock) map[string]any {
	return map[string]any{
		"have_conntrack":               flag(k.conntrack),
		"have_probe_read":              flag(k.probeRead),
		"tcp_syn_timeout_ns":           ns(60 * time.Second),
		"tcp_timeout_ns":               ns(5 * 24 * time.Hour),
		"tcp_closed_timeout_ns":        ns(60 * time.Second),
		"masquerade_closed_timeout_ns": ns(120 * time.Second),
		"udp_unanswered_timeout_ns":    ns(30 * time.Second),
		"udp_timeout_ns":               ns(180 * time.Second),
		"other_timeout_ns":             ns(600 * time.Second),
		"tick_ns":                      clock.Tick,
		"clock_base_ns":                clock.Base,
		"egress_tolerance_ns":          ns(36 * time.Millisecond),
	}
}

// kernelHas is what the programs are verified with, or without.
type kernelHas struct{ conntrack, probeRead bool }

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

func ns(d time.Duration) uint64 { return uint64(d.Nanoseconds()) }

// configure sets the variables in the object before it is loaded.
func configure(spec *ebpf.CollectionSpec, k kernelHas) error {
	clock, err := bpf.ReadClock()
	if err != nil {
		return err
	}
	for name, value := range variables(k, clock) {
		v := spec.Variables[name]
		if v == nil {
			continue // the compiler drops what no program reads
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	return nil
}
