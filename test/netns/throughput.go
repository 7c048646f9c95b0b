// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Stream is a load between two namespaces, and a measurement of it: From sends to
// To as fast as it may by TCP (cubic), or at Offer by UDP, and To counts what
// arrives. Reverse has To send and From count, as replies.
type Stream struct {
	Proto    string
	From, To *NS
	Dst      netip.Addr     // of To, as From calls it
	Port     uint16         // that To listens on; 0: any
	Via      netip.AddrPort // what From calls instead of Dst and Port: a hostPort
	Reverse  bool           // data flow back, on the connection (UDP: after a hello) that From opened
	Flows    int            // parallel connections; 0: 1
	Offer    uint64         // UDP: bit/s at the wire, of all flows together
	Size     int            // UDP: payload bytes; 0: 1400
	Warmup   time.Duration  // not counted: burst and slow start
	Window   time.Duration  // counted
}

// Sizes on an Ethernet wire of MTU 1500: a TCP segment with timestamps, and the
// headers of a datagram.
const (
	udpPayload  = 1400
	tcpPayload4 = 1448
	tcpPayload6 = 1428
	frame       = 1514
	udpHeaders4 = 14 + 20 + 8
	udpHeaders6 = 14 + 40 + 8
)

// Rate measures and returns the bit/s at the wire.
func (s Stream) Rate() (float64, error) {
	r, err := s.Start()
	if err != nil {
		return 0, err
	}
	defer r.Stop()
	rest(s.Warmup)
	before, start := r.Total(), time.Now()
	rest(s.Window)
	after, took := r.Total(), time.Since(start)
	return float64(after-before) * 8 / took.Seconds(), r.Err()
}

// Series returns the bit/s at the wire in every bucket, counted from the moment
// when the first byte was sent.
func (s Stream) Series(bucket, total time.Duration) ([]float64, error) {
	r, err := s.open()
	if err != nil {
		return nil, err
	}
	defer r.Stop()
	r.begin()
	rates := make([]float64, 0, total/bucket)
	start, last, before := time.Now(), time.Duration(0), uint64(0)
	for next := bucket; next <= total; next += bucket {
		rest(next - time.Since(start))
		now, got := time.Since(start), r.Total()
		rates = append(rates, float64(got-before)*8/(now-last).Seconds())
		last, before = now, got
	}
	if before == 0 {
		return nil, errors.Join(fmt.Errorf("%s: nothing arrived", s), r.Err())
	}
	return rates, r.Err()
}

// Start sends until Stop is called. It returns when the first byte arrived.
func (s Stream) Start() (*Running, error) {
	r, err := s.open()
	if err != nil {
		return nil, err
	}
	r.begin()
	err = Poll(func() error {
		if r.Total() == 0 {
			return fmt.Errorf("%s: nothing arrived", s)
		}
		return nil
	})
	if err != nil {
		r.Stop()
		return nil, errors.Join(err, r.Err())
	}
	return r, nil
}

// Goodput is the share of the wire's bits that are payload.
func (s Stream) Goodput() float64 { return 1 / s.overhead() }

// overhead is wire bytes by payload byte.
func (s Stream) overhead() float64 {
	v4 := s.called().Addr().Unmap().Is4()
	switch {
	case s.Proto == "tcp" && v4:
		return float64(frame) / tcpPayload4
	case s.Proto == "tcp":
		return float64(frame) / tcpPayload6
	case v4:
		return float64(s.size()+udpHeaders4) / float64(s.size())
	}
	return float64(s.size()+udpHeaders6) / float64(s.size())
}

// called is where From sends to; its port is 0 as long as To has not chosen one.
func (s Stream) called() netip.AddrPort {
	if s.Via.IsValid() {
		return s.Via
	}
	return netip.AddrPortFrom(s.Dst, s.Port)
}

func (s Stream) size() int {
	if s.Size == 0 {
		return udpPayload
	}
	return s.Size
}

func (s Stream) flows() int { return max(s.Flows, 1) }

func (s Stream) String() string {
	arrow := "->"
	if s.Reverse {
		arrow = "<-"
	}
	return fmt.Sprintf("%s %s %s %s (%s)", s.Proto, s.From.Name, arrow, s.To.Name, s.called())
}

// rest is time.Sleep for a measurement, which is no wait for a condition.
func rest(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
