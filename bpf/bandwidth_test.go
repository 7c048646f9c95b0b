// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const megabit = 1_000_000

// limit gives pod A an egress limit whose clock stands as far ahead of now.
func (n *node) limit(rate, burst uint64, ahead time.Duration) {
	n.Helper()
	row := n.a.row
	row.Flags |= bpf.DatapathPodFlagPOD_LIMIT_EGRESS
	for _, f := range families {
		n.putPod(f.a, row)
	}
	packet.Put(n, n.maps.Limits, n.limitKey(), bpf.DatapathLimit{RateBits: rate, BurstBits: burst,
		ClockNs: fineNow() + uint64(ahead)})
}

func (n *node) limitKey() bpf.DatapathLimitKey {
	return bpf.DatapathLimitKey{Ifindex: uint32(n.a.Index), Direction: bpf.DatapathDirectionFROM_POD}
}

func (n *node) clock() uint64 {
	n.Helper()
	row, ok := packet.Get[bpf.DatapathLimit](n, n.maps.Limits, n.limitKey())
	if !ok {
		n.Fatal("no limit row")
	}
	return row.ClockNs
}

// fineNow is the limits' clock.
func fineNow() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return uint64(ts.Nano())
}

// B1: what is over the rate is dropped, wherever it goes.
func TestPrivilegedEgressLimitDrops(t *testing.T) {
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				for _, p := range []packet.Packet{between(f.a, f.client, o.Transport), between(f.a, f.b, o.Transport),
					between(f.a, f.node, o.Transport)} {
					n.clear()
					n.limit(megabit, 0, time.Hour)
					before := n.clock()
					out := n.fromPod(n.a, p)
					n.dropped(out, n.a.Index, fromPodHook, bpf.DatapathDropReasonDROP_EGRESS_LIMIT)
					n.tables(out, nil, nil)
					if n.clock() != before {
						n.Errorf("the clock went on by %d for a packet that was dropped", n.clock()-before)
					}
				}
			})
		})
	}
}

// The clock goes on by what the packet costs on the wire, a GSO packet's headers once a
// segment.
func TestPrivilegedEgressLimitClock(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		p := sized(between(f.a, f.b, syn), 1300)
		headers := len(p.With(nil).Frame())
		for _, c := range []struct {
			segments, size int
			bytes          int
		}{
			{0, 0, 1314}, {1, 0, 1314}, {3, 1300, 1314 + 2*headers}, {44, 1300, 1314 + 43*headers},
			{0, 1300, 1314}, {0, 100, 1314 + (1314-headers-1)/100*headers}, {1, 8, 1314 + (1314-headers-1)/8*headers}, // injected
			{5, 0xffff, 1314 + 4*headers}, // GSO_BY_FRAGS
		} {
			for _, rate := range []uint64{megabit, 10 * megabit, 1000 * megabit} {
				n.limit(rate, rate, time.Second/2)
				before := n.clock()
				in := packet.In{Program: "from_pod", Device: n.a.Index, GSOSegs: c.segments, GSOSize: c.size,
					Frame: p.Link(n.a.MAC, n.a.Peer).Frame()}
				n.Run(n, in)
				want := uint64(c.bytes) * 8 * uint64(time.Second) / rate
				if got := n.clock() - before; got != want {
					n.Errorf("%d segments of %d at %d bit/s: the clock went on by %d ns, want %d", c.segments, c.size, rate, got, want)
				}
			}
		}
		n.notDropped()
	})
}

// A clock that was left behind begins at now: an idle pod saves nothing up.
func TestPrivilegedEgressLimitIdle(t *testing.T) {
	n := newNode(t)
	n.limit(megabit, 0, -time.Second)
	p := sized(between(v4.a, v4.client, udp), 1236) // 1250 bytes: 10 ms
	before := fineNow()
	n.passed(n.fromPod(n.a, p), p)
	after := fineNow()
	if got := n.clock() - uint64(10*time.Millisecond); got < before || got > after {
		t.Errorf("clock without the packet: %d, the run was from %d to %d", got, before, after)
	}
	n.notDropped()
}

// How far ahead of now a packet may bring the clock: 36 ms, or 12 ms more than the burst's
// time at the rate.
func TestPrivilegedEgressLimitTolerance(t *testing.T) {
	for name, c := range map[string]struct {
		burst     uint64
		tolerance time.Duration
	}{
		"no burst":    {0, 36 * time.Millisecond},
		"small burst": {megabit / 50, 36 * time.Millisecond},
		"burst":       {megabit, time.Second + 12*time.Millisecond},
		"large burst": {60 * megabit, time.Minute + 12*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p := sized(between(v4.a, v4.client, udp), 1236)
			const cost = 10 * time.Millisecond
			n.limit(megabit, c.burst, c.tolerance-cost-time.Millisecond)
			n.passed(n.fromPod(n.a, p), p)
			n.notDropped()
			n.limit(megabit, c.burst, c.tolerance-cost/2)
			n.dropped(n.fromPod(n.a, p), n.a.Index, fromPodHook, bpf.DatapathDropReasonDROP_EGRESS_LIMIT)
		})
	}
}

// B4: no flag, no row and a rate of 0 are no limit; the other direction's is none either.
func TestPrivilegedEgressLimitNone(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		p := between(f.a, f.client, udp)
		n.limit(0, 0, time.Hour)
		n.passed(n.fromPod(n.a, p), p)
		n.limit(megabit, 0, time.Hour)
		n.rowsOfPods()
		n.passed(n.fromPod(n.a, p), p)

		n.clear()
		n.limit(megabit, 0, time.Hour)
		row, _ := packet.Get[bpf.DatapathLimit](n, n.maps.Limits, n.limitKey())
		key := n.limitKey()
		if err := n.maps.Limits.Delete(key); err != nil {
			n.Fatal(err)
		}
		n.passed(n.fromPod(n.a, p), p)
		key.Direction = bpf.DatapathDirectionTO_POD
		packet.Put(n, n.maps.Limits, key, row)
		n.passed(n.fromPod(n.a, p), p)
		// Nor does B share A's.
		n.limit(megabit, 0, time.Hour)
		other := between(f.b, f.client, udp)
		n.passed(n.fromPod(n.b, other), other)
		n.notDropped()
	})
}

// B5: whatever leaves by the link is held to its limit: what is no IP, what neighbours say,
// and what another interface of the same container is the source of.
func TestPrivilegedEgressLimitOfLink(t *testing.T) {
	n := newNode(t)
	other := n.b.row
	other.Netns = n.a.row.Netns
	n.putPod(v4.b, other)
	broadcast := packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	strange := between(v4.a, v4.client, udp).Link(n.a.MAC, n.a.Peer).Frame()
	strange[12], strange[13] = 0x88, 0xb5 // local experimental
	for name, frame := range map[string][]byte{
		"no IP":           strange,
		"ARP":             arp(arpRequest, broadcast, n.a.Peer, v4.a, v4.b, packet.MAC{}),
		"ARP, a reply":    arp(arpReply, n.a.MAC, n.a.Peer, v4.a, v4.b, n.a.MAC),
		"solicitation":    nd(135, 0, 1, v6.a, ip("ff02::1:ff00:1"), v6.b, n.a.Peer).Link(n.a.MAC, n.a.Peer).Frame(),
		"link-local":      nd(135, 0, 1, ip("fe80::1234"), ip("ff02::1:ff00:1"), v6.b, n.a.Peer).Link(n.a.MAC, n.a.Peer).Frame(),
		"other interface": between(v4.b, v4.client, udp).Link(n.a.MAC, n.a.Peer).Frame(),
	} {
		n.limit(megabit, 0, time.Hour)
		n.dropped(n.run("from_pod", n.a.Device, frame), n.a.Index, fromPodHook, bpf.DatapathDropReasonDROP_EGRESS_LIMIT)
		n.Object.ClearDrops(n)

		n.limit(megabit, megabit, time.Second/2)
		before := n.clock()
		n.run("from_pod", n.a.Device, frame)
		if got, want := n.clock()-before, uint64(len(frame))*8000; got != want {
			t.Errorf("%s: the clock went on by %d ns, want %d", name, got, want)
		}
		n.notDropped()
	}
}

// What is dropped for another reason uses nothing up.
func TestPrivilegedEgressLimitAfterSource(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.limit(megabit, megabit, time.Second/2)
		before := n.clock()
		n.dropped(n.fromPod(n.a, between(f.client, f.b, udp)), n.a.Index, fromPodHook, bpf.DatapathDropReasonDROP_SOURCE)
		if n.clock() != before {
			n.Errorf("the clock went on by %d", n.clock()-before)
		}
	})
}
