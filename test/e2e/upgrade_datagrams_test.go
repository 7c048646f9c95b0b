// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// datagrams are numbered; the socket keeps its port.
type datagrams struct {
	way         way
	conn        *net.UDPConn
	sent, twice atomic.Int64
	mu          sync.Mutex
	answered    map[uint64]bool
}

// datagrams sends one every interval. Buffers are large: what a busy machine leaves in
// them for seconds is not lost.
func (tr *ongoing) datagrams(t *testing.T, w way, every time.Duration) {
	t.Helper()
	d := &datagrams{way: w, answered: map[uint64]bool{}}
	var err error
	if d.conn, err = udpSocket(w.from, netip.AddrPort{}, w.to); err != nil {
		t.Fatal(err)
	}
	tr.senders = append(tr.senders, d)
	received := make(chan struct{})
	t.Cleanup(func() { d.conn.Close(); <-received })
	go func() {
		defer close(received)
		buf := make([]byte, 64)
		for {
			n, err := d.conn.Read(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n == 8 {
				d.note(binary.BigEndian.Uint64(buf))
			}
		}
	}()
	tr.busy.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tr.stop:
				return
			case <-tick.C:
			}
			_, _ = d.conn.Write(binary.BigEndian.AppendUint64(nil, uint64(d.sent.Add(1)))) // an error is a datagram without answer
		}
	})
}

func (d *datagrams) note(number uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered[number] {
		d.twice.Add(1)
	}
	d.answered[number] = true
}

// missing waits for late answers and gives the numbers of those that did not come.
func (d *datagrams) missing() (numbers []uint64) {
	_ = netns.Poll(func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		numbers = nil
		for n := uint64(1); n <= uint64(d.sent.Load()); n++ {
			if !d.answered[n] {
				numbers = append(numbers, n)
			}
		}
		if len(numbers) > 0 {
			return errors.New("answers are missing")
		}
		return nil
	})
	return numbers
}

// echoUDP answers every datagram with itself.
func echoUDP(t *testing.T, ns *netns.NS, port uint16) {
	t.Helper()
	for _, at := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		c, err := udpSocket(ns, netip.AddrPortFrom(at, port), netip.AddrPort{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		t.Cleanup(func() { c.Close(); <-done })
		go func() {
			defer close(done)
			buf := make([]byte, 2048)
			for {
				n, from, err := c.ReadFromUDPAddrPort(buf)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = c.WriteToUDPAddrPort(buf[:n], from)
				}
			}
		}()
	}
}

// udpSocket binds, or connects.
func udpSocket(ns *netns.NS, at, to netip.AddrPort) (c *net.UDPConn, err error) {
	err = ns.Do(func() (err error) {
		if to.IsValid() {
			c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			return err
		}
		network := "udp4"
		if at.Addr().Is6() {
			network = "udp6"
		}
		c, err = net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
	return c, errors.Join(err, set)
}
