// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Stream is one measurement: From sends to To as fast as it may by TCP (cubic),
// or at Offer by UDP, and To counts what arrives.
type Stream struct {
	Proto    string
	From, To *NS
	Dst      netip.Addr    // of To, as From calls it
	Offer    uint64        // UDP: bit/s at the wire
	Warmup   time.Duration // not counted: burst and slow start
	Window   time.Duration // counted
}

// Sizes on an Ethernet wire of MTU 1500: a TCP segment with timestamps, and a
// datagram of udpPayload bytes with its headers.
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
	var got atomic.Uint64
	addr, stop, err := s.sink(&got)
	if err != nil {
		return 0, fmt.Errorf("open sink in %s: %w", s.To.Name, err)
	}
	defer stop()
	quit := make(chan struct{})
	sent := make(chan error, 1)
	conn, err := s.dial(addr)
	if err != nil {
		return 0, fmt.Errorf("%s %s -> %s: %w", s.Proto, s.From.Name, addr, err)
	}
	go func() { sent <- s.send(conn, quit) }()
	defer func() {
		close(quit)
		_ = conn.SetDeadline(time.Now())
		<-sent
		_ = conn.Close()
	}()
	if err := Poll(func() error {
		if got.Load() == 0 {
			return fmt.Errorf("%s %s -> %s: nothing arrived", s.Proto, s.From.Name, addr)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	time.Sleep(s.Warmup)
	before, start := got.Load(), time.Now()
	time.Sleep(s.Window)
	after, took := got.Load(), time.Since(start)
	return float64(after-before) * 8 * s.overhead() / took.Seconds(), nil
}

// overhead is wire bytes by payload byte.
func (s Stream) overhead() float64 {
	switch {
	case s.Proto == "tcp" && s.Dst.Is4():
		return float64(frame) / tcpPayload4
	case s.Proto == "tcp":
		return float64(frame) / tcpPayload6
	case s.Dst.Is4():
		return float64(udpPayload+udpHeaders4) / udpPayload
	}
	return float64(udpPayload+udpHeaders6) / udpPayload
}

// sink counts payload bytes on a port of its own.
func (s Stream) sink(got *atomic.Uint64) (netip.AddrPort, func(), error) {
	if s.Proto == "udp" {
		var c *net.UDPConn
		err := s.To.Do(func() (err error) { c, err = net.ListenUDP("udp", nil); return err })
		if err != nil {
			return netip.AddrPort{}, nil, err
		}
		go drain(c, got)
		return netip.AddrPortFrom(s.Dst, c.LocalAddr().(*net.UDPAddr).AddrPort().Port()), func() { _ = c.Close() }, nil
	}
	var l net.Listener
	if err := s.To.Do(func() (err error) { l, err = net.Listen("tcp", ":0"); return err }); err != nil {
		return netip.AddrPort{}, nil, err
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			drain(c, got)
		}
	}()
	return netip.AddrPortFrom(s.Dst, l.Addr().(*net.TCPAddr).AddrPort().Port()), func() { _ = l.Close() }, nil
}

func drain(c net.Conn, got *atomic.Uint64) {
	buf := make([]byte, 256<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		got.Add(uint64(n))
	}
}

func (s Stream) dial(to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: Patience}
	if s.Proto == "tcp" {
		d.Control = cubic
	}
	var c net.Conn
	err := s.From.Do(func() (err error) { c, err = d.Dial(s.Proto, to.String()); return err })
	return c, err
}

// send goes on until quit is closed. UDP keeps to Offer in steps of 2 ms; what
// a shaper in the sender's own device refuses (ENOBUFS) is not an error.
func (s Stream) send(c net.Conn, quit <-chan struct{}) error {
	buf := make([]byte, 64<<10)
	if s.Proto == "udp" {
		buf = buf[:udpPayload]
	}
	start, sent := time.Now(), 0.0
	for {
		select {
		case <-quit:
			return nil
		default:
		}
		if s.Proto == "udp" {
			due := time.Since(start).Seconds() * float64(s.Offer) / 8 / s.overhead()
			if sent > due {
				time.Sleep(2 * time.Millisecond)
				continue
			}
			sent += udpPayload
		}
		if _, err := c.Write(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
}
