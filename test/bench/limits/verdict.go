// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"math"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

// Bounds of what passes a limit, as shares of it, at the wire (M11).
const (
	leastTCP = 0.95
	leastUDP = 0.97
	most     = 1.02

	leastOffer = 1.2 // UDP: with less the limit was not tried
)

// verdict of a row. An emulated machine is too slow to fill a limit: something has to
// pass, and not more than the limit.
func (r row) verdict(emulated bool) string {
	var missed []string
	for _, v := range []struct{ proto, is string }{{"TCP", r.tcpVerdict(emulated)}, {"UDP", r.udpVerdict(emulated)}} {
		if v.is != "ok" {
			missed = append(missed, v.proto+" "+v.is)
		}
	}
	if missed != nil {
		return strings.Join(missed, ", ")
	}
	if n := max(r.tcp.tries, r.udp.tries); n > 1 {
		return fmt.Sprintf("ok, try %d", n)
	}
	return "ok"
}

func (r row) tcpVerdict(emulated bool) string {
	return stats.Within(floor(leastTCP, emulated), r.tcp.Wire, most)
}

func (r row) udpVerdict(emulated bool) string {
	v := stats.Within(floor(leastUDP, emulated), r.udp.Wire, most)
	if r.udp.Offered < leastOffer && !emulated {
		return fmt.Sprintf("was offered at %.2f only", r.udp.Offered)
	}
	return v
}

func floor(least float64, emulated bool) float64 {
	if emulated {
		return math.SmallestNonzeroFloat64
	}
	return least
}
