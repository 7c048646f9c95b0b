// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// How a rate becomes a shaper. The burst is what may go back to back after a pause, and
// what a TCP segment of 64 KiB is cut into if it exceeds it; the queue is what waits.
// Both are bounded in time, whatever burst was asked for: runtimes ask for seconds of it
// (containerd for 2^32-1 bit), and a limit has to bite, and a ping to come through.
const (
	burstPerSecond = 250 // least burst: what the rate gives in 4 ms, about a timer's slack
	queuePerSecond = 100 // burst at most, and queue at least: what it gives in 10 ms

	wholeSegment = 68 << 10    // burst from fastRate up: 64 KiB of payload and headers
	fastRate     = 100_000_000 // bit/s
	burstPackets = 2           // least burst of a slow limit, in packets of the MTU
	queuePackets = 8           // least queue; with less, TCP keeps falling back to timeouts
	mostBytes    = 64 << 20    // what the kernel's 32-bit fields take, with room

	ethernetHeader = 14 // counted by the shaper, not by the MTU
)

// shaper gives the parameters for a rate on a device of that MTU; none if the rate is 0.
func (r Rate) shaper(mtu int) netdev.Shaper {
	if r.Rate == 0 {
		return netdev.Shaper{}
	}
	packet := uint64(mtu + ethernetHeader)
	bytes := r.Rate / 8
	least := max(bytes/burstPerSecond, burstPackets*packet)
	if r.Rate >= fastRate {
		least = max(least, wholeSegment)
	}
	most := max(bytes/queuePerSecond, least)
	burst := min(max(r.Burst/8, least), most, mostBytes)
	// A packet, or a segment not yet cut, that is larger than the queue would be dropped
	// every time.
	queue := min(max(bytes/queuePerSecond, burst+packet, queuePackets*packet), mostBytes)
	return netdev.Shaper{Rate: bytes, Burst: burst, Queue: queue}
}

// limit is the row for a rate that is shaped by s; ok is false if there is none.
func (r Rate) limit(s netdev.Shaper, ifindex int, d maps.Direction) (l maps.Limit, ok bool) {
	return maps.Limit{Ifindex: ifindex, Direction: d, Rate: r.Rate, Burst: s.Burst * 8}, r.Rate > 0
}
