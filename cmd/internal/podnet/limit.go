// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// What a limit may be, in bit/s.
const (
	LeastRate = 1000                  // a queue of whole packets holds no slower one
	MostRate  = 1_000_000_000_000_000 // what kubelet allows
)

// How a rate becomes a shaper. The burst is what may go back to back after a pause, and
// what a TCP segment of 64 KiB is cut into if it exceeds it; the queue is what waits.
// Both are bounded in time, whatever burst was asked for: runtimes ask for seconds of it
// (containerd for 2^32-1 bit), and a limit has to bite, and a ping to come through.
const (
	burstPerSecond = 250 // least burst: what the rate gives in 4 ms, about a timer's slack
	mostPerSecond  = 100 // most of both: what it gives in 10 ms
	queuePerSecond = 333 // a queue that is long in bytes: 3 ms

	wholeSegment = 68 << 10    // burst from fastRate up: 64 KiB of payload and headers
	fastRate     = 100_000_000 // bit/s
	queuePackets = 3           // least queue; with less, TCP keeps falling back to timeouts
	longQueue    = 375_000     // bytes; TCP fills 1 Gbit/s with it
	mostBytes    = 64 << 20    // what the kernel's 32-bit fields take, with room

	ethernetHeader = 14 // counted by the shaper, not by the MTU
)

// Where each flow has a queue of its own, it is fq_codel that keeps the queues short. A
// packet has to be able to wait for another one, or CoDel would drop from a queue that
// is as short as it can be (RFC 8289, 4.3). Its memory bounds what answers to no drop, a
// flood; it counts what packets occupy in the kernel, which is about twice their length.
const (
	flowTarget     = 5 * time.Millisecond // 1 Mbit/s: 15 ms, for a packet that takes 12
	flowInterval   = 100 * time.Millisecond
	flowsPerSecond = 10       // memory: what the rate gives in 100 ms
	flowsPackets   = 32       // at least
	packetOverhead = 2 << 10  // what a packet occupies beside its bytes, at most
	mostFlows      = 32 << 20 // the kernel's own bound
)

// shaperKind is the decision how limits are held, made when the datapath is loaded.
func shaperKind(f maps.Features) maps.Shaper { return kindOf(f&maps.FeatureFqCodel != 0) }

// kindOf tells the kind from what a shaper is, or is to be.
func kindOf(flows bool) maps.Shaper {
	if flows {
		return maps.ShaperTBFFqCodel
	}
	return maps.ShaperTBF
}

// shaper gives the parameters for a rate on a device of that MTU; none if the rate is 0.
func (r Rate) shaper(mtu int, kind maps.Shaper) netdev.Shaper {
	if r.Rate == 0 {
		return netdev.Shaper{}
	}
	packet := uint64(mtu + ethernetHeader)
	bytes := r.Rate / 8
	least := max(bytes/burstPerSecond, packet)
	if r.Rate >= fastRate {
		least = max(least, wholeSegment)
	}
	burst := min(max(r.Burst/8, least), max(bytes/mostPerSecond/packet*packet, least), mostBytes)
	// A segment that is not yet cut and larger than the queue would be dropped every time.
	segment := (min(burst, wholeSegment) + packet - 1) / packet
	whole := max(min(bytes/mostPerSecond, max(bytes/queuePerSecond, longQueue))/packet, queuePackets, segment)
	// A bulk stream keeps the queue full of whole packets. The room beyond a number of these
	// is for what is smaller: a ping, or a request.
	queue := min(whole*packet+packet-1, mostBytes)
	s := netdev.Shaper{Rate: bytes, Burst: burst, Queue: queue}
	if kind == maps.ShaperTBFFqCodel {
		s.Flows = flowQueues(bytes, packet)
	}
	return s
}

func flowQueues(bytes, packet uint64) *netdev.FlowQueues {
	target := max(flowTarget, time.Duration(packet*1e9/bytes)*5/4)
	return &netdev.FlowQueues{
		Target:   target,
		Interval: max(flowInterval, 2*target),
		Memory:   min(max(2*bytes/flowsPerSecond, flowsPackets*(packet+packetOverhead)), mostFlows),
	}
}

// limit is the row for a rate that is shaped by s.
func (r Rate) limit(s netdev.Shaper, ifindex int, d maps.Direction, kind maps.Shaper) maps.Limit {
	return maps.Limit{Ifindex: ifindex, Direction: d, Rate: r.Rate, Burst: s.Burst * 8, Shaper: kind}
}
