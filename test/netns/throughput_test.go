// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// pair is two namespaces with a wire between them.
func pair(t *testing.T) (a, b *NS, dst netip.Addr) {
	a, b = New(t, "a"), New(t, "b")
	b.IP(t, "link add veth0 type veth peer name veth0 netns "+a.Path(), "addr add 10.20.0.2/24 dev veth0", "link set veth0 up")
	a.IP(t, "addr add 10.20.0.1/24 dev veth0", "link set veth0 up")
	a.Settle(t, "veth0")
	return a, b, addr("10.20.0.2")
}

// Every kind of stream arrives, and UDP at 1.5 Gbit/s is really offered, and received.
func TestPrivilegedStream(t *testing.T) {
	a, b, dst := pair(t)
	for _, reverse := range []bool{false, true} {
		for _, flows := range []int{1, 10} {
			s := Stream{From: a, To: b, Dst: dst, Reverse: reverse, Flows: flows, Window: 200 * time.Millisecond}
			t.Run(fmt.Sprintf("%t%d", reverse, flows), func(t *testing.T) {
				s.Proto = "tcp"
				if rate, err := s.Rate(); err != nil || rate < 100e6 {
					t.Errorf("TCP: %.0f Mbit/s, %v", rate/1e6, err)
				}
				s.Proto, s.Offer = "udp", 5e6
				holds(t, s, 0.8)
				if !Emulated() {
					s.Offer = 1500e6
					holds(t, s, 0.8)
				}
			})
		}
	}
}

// holds tries three times, as the machine may be busy.
func holds(t *testing.T, s Stream, least float64) {
	t.Helper()
	var seen string
	for range 3 {
		r, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		start, got, sent := time.Now(), r.Total(), r.Sent()
		rest(s.Window)
		took := time.Since(start).Seconds()
		received, offered := float64(r.Total()-got)*8/took, float64(r.Sent()-sent)*8/took
		r.Stop()
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if want := least * float64(s.Offer); received >= want && offered >= want && received <= 1.3*float64(s.Offer) {
			return
		}
		seen += fmt.Sprintf(" %.1f/%.1f", received/1e6, offered/1e6)
	}
	t.Errorf("%s: received/offered%s of %d Mbit/s", s, seen, s.Offer/1e6)
}

func TestPrivilegedSeries(t *testing.T) {
	a, b, dst := pair(t)
	s := Stream{Proto: "udp", From: a, To: b, Dst: dst, Offer: 20e6}
	rates, err := s.Series(50*time.Millisecond, 300*time.Millisecond)
	if err != nil || len(rates) != 6 {
		t.Fatalf("series %v, %v; want 6 buckets", rates, err)
	}
	var sum float64
	for _, r := range rates {
		sum += r / 6
	}
	if sum < 10e6 || sum > 25e6 {
		t.Errorf("mean %.1f Mbit/s of %v, want 20", sum/1e6, rates)
	}
}

// A stream that goes nowhere says so, and Stop is not held up by it.
func TestPrivilegedStreamNowhere(t *testing.T) {
	t.Parallel()
	a, b, _ := pair(t)
	s := Stream{Proto: "udp", From: a, To: b, Dst: addr("10.20.0.3"), Offer: 1e6}
	if r, err := s.Start(); err == nil {
		r.Stop()
		t.Error("a stream to nobody started")
	}
}
