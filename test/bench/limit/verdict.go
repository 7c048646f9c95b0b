// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
)

// Bounds of what passes a limit, as shares of it, at the wire (M11).
const (
	leastTCP = 0.95
	leastUDP = 0.97
	most     = 1.02

	leastOffer = 1.2 // UDP: with less the limit was not tried
)

// within is a verdict on a value.
func within(least, v, most float64) string {
	switch {
	case math.IsNaN(v):
		return "not measured"
	case v > most:
		return fmt.Sprintf("MISS by %.1f %%", 100*(v/most-1))
	case v < least:
		return fmt.Sprintf("MISS by %.1f %%", 100*(1-v/least))
	}
	return "ok"
}

// verdict of a row. An emulated machine is too slow to fill a limit: something has to
// pass, and not more than the limit.
func (r row) verdict(emulated bool) string {
	leastTCP, leastUDP := leastTCP, leastUDP
	if emulated {
		leastTCP, leastUDP = math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64
	}
	tcp, udp := within(leastTCP, r.tcp.Wire, most), within(leastUDP, r.udp.Wire, most)
	if r.udp.Offered < leastOffer && !emulated {
		udp = fmt.Sprintf("was offered at %.2f only", r.udp.Offered)
	}
	var missed []string
	if tcp != "ok" {
		missed = append(missed, "TCP "+tcp)
	}
	if udp != "ok" {
		missed = append(missed, "UDP "+udp)
	}
	if missed == nil {
		return "ok"
	}
	return strings.Join(missed, ", ")
}
