// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// Bounds of a limit, as requirement B1 has them for tests.
const lowest, highest = 0.85, 1.02

// cell is one measurement: of a stream that fills the limit of a pod.
type cell struct {
	name   string
	stream netns.Stream
}

// B1: each direction is held to its rate at the wire, by TCP and UDP, towards every kind
// of peer, through a hostPort and as its replies too, and the limit on the node drops
// nothing while the shaper stands (the cluster's counters). Every cell has a pod of its
// own; slow ones are measured side by side.
func TestPrivilegedB1Rate(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	other := c.Nodes[0].Add(t, netns.PodSpec{Name: "other"})
	for _, tc := range []struct {
		rate           uint64
		atOnce         int
		warmup, window time.Duration
	}{
		{1e6, 20, 1500 * time.Millisecond, 3 * time.Second}, // a packet takes 12 ms
		{10e6, 10, 500 * time.Millisecond, time.Second},
		{100e6, 4, 350 * time.Millisecond, 600 * time.Millisecond},
		{1e9, 1, 250 * time.Millisecond, 400 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%dM", tc.rate/1e6), func(t *testing.T) {
			if netns.Emulated() {
				if tc.atOnce = 2; tc.rate != 10e6 {
					t.Skip("an emulated machine is slow")
				}
			}
			turn := make(chan struct{}, tc.atOnce)
			var all sync.WaitGroup
			for _, m := range rateCells(t, c, other, tc.rate) {
				m.stream.Warmup, m.stream.Window = tc.warmup, tc.window
				all.Go(func() {
					turn <- struct{}{}
					defer func() { <-turn }()
					t.Run(m.name, func(t *testing.T) { holds(t, m.stream, tc.rate) })
				})
			}
			all.Wait()
		})
	}
}

// rateCells adds a pod for each direction, kind of peer and protocol, by IPv4, and by
// IPv6 with the first kind.
func rateCells(t *testing.T, c *cluster, other *netns.Pod, rate uint64) (cells []cell) {
	t.Helper()
	node, outside := c.Nodes[0], c.Outside()
	up := node.Uplinks[0]
	for _, direction := range []string{"ingress", "egress"} {
		for i, peer := range []struct {
			name     string
			ns       *netns.NS
			addr     func(int) netip.Addr
			hostPort bool
		}{
			{"Outside", outside.NS, outside.Addr, false}, {"Pod", other.NS, other.Addr, false},
			{"Host", node.NS, up.Addr, false}, {"HostPort", outside.NS, nil, true},
		} {
			each := map[string]int{"tcp/4": 4, "udp/4": 4}
			if i == 0 {
				each["tcp/6"], each["udp/6"] = 6, 6
			}
			for name, v := range each {
				if netns.Emulated() && (name[:3] == "tcp") == ((v == 6) == (direction == "egress")) {
					continue // half of them, each protocol and family in each direction
				}
				spec := netns.PodSpec{Name: fmt.Sprintf("p%d", len(cells)), Bandwidth: limit(direction, rate)}
				if peer.hostPort {
					spec.Ports = netns.Both(8000+len(cells), 80)
				}
				p := node.Add(t, spec)
				s := netns.Stream{Proto: name[:3], From: peer.ns, To: p.NS, Dst: p.Addr(v)}
				switch {
				case peer.hostPort:
					s.Port, s.Via, s.Reverse = 80, netip.AddrPortFrom(up.Addr(v), p.HostPort), direction == "egress"
				case direction == "egress":
					s.From, s.To, s.Dst = p.NS, peer.ns, peer.addr(v)
				}
				cells = append(cells, cell{direction + peer.name + "/" + name, s})
			}
		}
	}
	return cells
}

// limit has a burst of 100 ms, which the warm-up spends.
func limit(direction string, rate uint64) *netns.Bandwidth {
	if direction == "ingress" {
		return &netns.Bandwidth{IngressRate: rate, IngressBurst: rate / 10}
	}
	return &netns.Bandwidth{EgressRate: rate, EgressBurst: rate / 10}
}

// bounds are those of a rate that is measured where it is read. The clock of an emulated
// machine goes on while it does not run: much may be read late, and little sent.
func bounds() (least, most float64) {
	if netns.Emulated() {
		return 0.3, highest
	}
	return lowest, highest
}

// holds measures up to three times until the rate lies within the bounds.
func holds(t *testing.T, s netns.Stream, rate uint64) {
	t.Helper()
	least, most := bounds()
	s.Offer = rate * 3 / 2
	if s.Window == 0 {
		s.Warmup, s.Window = 350*time.Millisecond, 600*time.Millisecond
		// What TCP holds back after the losses that end its slow start comes in one piece; a
		// slow machine's takes longer.
		if netns.Emulated() {
			s.Warmup, s.Window = 1500*time.Millisecond, time.Second
		}
	}
	var got []string
	for range 3 {
		r, err := s.Rate()
		if err != nil {
			t.Fatal(err)
		}
		if x := r / float64(rate); x >= least && x <= most {
			return
		}
		got = append(got, fmt.Sprintf("%.3f", r/1e6))
		t.Logf("again, after %v Mbit/s", got)
	}
	t.Errorf("%s: want %.2f-%.2f of %d Mbit/s at the wire, got %v Mbit/s", s, least, most, rate/1e6, got)
}

func needsClock(t *testing.T) {
	t.Helper()
	netns.RequireRoot(t)
	if netns.Emulated() {
		t.Skip("rates of an emulated machine say nothing")
	}
}
