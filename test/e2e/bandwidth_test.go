// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// Bounds of a limit, as requirement B1 has them for tests.
const lowest, highest = 0.85, 1.02

// B1: each direction is held to its rate at the wire, towards every kind of
// peer. The four pods are measured side by side; each has one peer at a time.
func TestPrivilegedB1Rate(t *testing.T) {
	needsClock(t)
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	var all sync.WaitGroup
	for _, rate := range []uint64{10e6, 100e6} {
		for _, direction := range []string{"ingress", "egress"} {
			name := fmt.Sprintf("%s%dM", direction, rate/1e6)
			p := node.Add(t, netns.PodSpec{Name: name, Bandwidth: limit(direction, rate)})
			peer := node.Add(t, netns.PodSpec{Name: "peer-" + name})
			all.Go(func() {
				t.Run(name, func(t *testing.T) { rates(t, c, p, peer, direction, rate) })
			})
		}
	}
	all.Wait()
}

// rates measures one pod and direction with each kind of peer in turn.
func rates(t *testing.T, c *cluster, p, peer *netns.Pod, direction string, rate uint64) {
	node, outside := c.Nodes[0], c.Outside()
	for _, to := range []struct {
		name string
		ns   *netns.NS
		at   func(int) netip.Addr
	}{{"Outside", outside.NS, outside.Addr}, {"Pod", peer.NS, peer.Addr}, {"Host", node.NS, node.Uplinks[0].Addr}} {
		t.Run(to.name, func(t *testing.T) {
			each(t, []string{"tcp", "udp"}, func(t *testing.T, proto string, v int) {
				s := netns.Stream{Proto: proto, From: p.NS, To: to.ns, Dst: to.at(v)}
				if direction == "ingress" {
					s.From, s.To, s.Dst = to.ns, p.NS, p.Addr(v)
				}
				holds(t, s, rate)
			})
		})
	}
}

// limit has a burst of 100 ms, which the warm-up spends.
func limit(direction string, rate uint64) *netns.Bandwidth {
	if direction == "ingress" {
		return &netns.Bandwidth{IngressRate: rate, IngressBurst: rate / 10}
	}
	return &netns.Bandwidth{EgressRate: rate, EgressBurst: rate / 10}
}

// holds measures up to three times until the rate lies within the bounds.
func holds(t *testing.T, s netns.Stream, rate uint64) {
	t.Helper()
	s.Offer, s.Warmup, s.Window = rate*3/2, 350*time.Millisecond, 600*time.Millisecond
	var got []string
	for range 3 {
		r, err := s.Rate()
		if err != nil {
			t.Fatal(err)
		}
		if x := r / float64(rate); x >= lowest && x <= highest {
			return
		}
		got = append(got, fmt.Sprintf("%.2f", r/1e6))
	}
	t.Errorf("%s %s -> %s: want %.2f-%.2f of %d Mbit/s at the wire, got %v Mbit/s", s.Proto, s.From.Name, s.Dst, lowest, highest, rate/1e6, got)
}

// B4: a rate without a burst works, 0 is no limit, one direction alone works and
// leaves the other free, two pods with one value do not share it.
func TestPrivilegedB4Variants(t *testing.T) {
	needsClock(t)
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	const rate = 20e6
	add := func(name string, b netns.Bandwidth) *netns.Pod {
		return node.Add(t, netns.PodSpec{Name: name, Bandwidth: &b})
	}
	in1, in2 := add("in1", netns.Bandwidth{IngressRate: rate}), add("in2", netns.Bandwidth{IngressRate: rate})
	out, zero := add("out", netns.Bandwidth{EgressRate: rate}), add("zero", netns.Bandwidth{})
	toPod := func(p *netns.Pod) netns.Stream {
		return netns.Stream{Proto: "tcp", From: outside.NS, To: p.NS, Dst: p.V4}
	}
	fromPod := func(p *netns.Pod) netns.Stream {
		return netns.Stream{Proto: "tcp", From: p.NS, To: outside.NS, Dst: outside.V4}
	}
	if limits := rows(t, tables(t, node).Limits.All()); len(limits) != 3 {
		t.Errorf("limits: want 3 rows, got %+v", limits)
	}
	var all sync.WaitGroup
	for name, s := range map[string]netns.Stream{"in1": toPod(in1), "in2": toPod(in2), "out": fromPod(out)} {
		all.Go(func() { t.Run(name, func(t *testing.T) { holds(t, s, rate) }) })
	}
	all.Wait()
	for name, s := range map[string]netns.Stream{
		"in1 egress": fromPod(in1), "out ingress": toPod(out), "zero ingress": toPod(zero), "zero egress": fromPod(zero),
	} {
		s.Warmup, s.Window = 50*time.Millisecond, 150*time.Millisecond
		if r, err := s.Rate(); err != nil || r < 5*rate {
			t.Errorf("%s: want no limit, got %.1f Mbit/s (%v)", name, r/1e6, err)
		}
	}
}

// B6, in part: the rows of limits say what was asked for.
func TestPrivilegedB6Rows(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	p := node.Add(t, netns.PodSpec{Name: "p", Bandwidth: &netns.Bandwidth{IngressRate: 1e6, EgressRate: 2e6}})
	set := tables(t, node)
	ifindex := devices(t, node.NS)[p.Host.Name].Index
	for d, rate := range map[maps.Direction]uint64{maps.Ingress: 1e6, maps.Egress: 2e6} {
		if l, err := set.Limits.Get(ifindex, d); err != nil || l.Rate != rate || l.Burst == 0 {
			t.Errorf("limit %s: want rate %d and a burst, got %+v (%v)", d, rate, l, err)
		}
	}
}

func needsClock(t *testing.T) {
	t.Helper()
	netns.RequireRoot(t)
	if netns.Emulated() {
		t.Skip("rates of an emulated machine say nothing")
	}
}
