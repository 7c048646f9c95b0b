// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	batch     = 32                     // datagrams a system call
	step      = 500 * time.Microsecond // between batches
	forgiven  = 20 * time.Millisecond  // a sender that was not let run for longer does not catch up
	udpBuffer = 16 << 20

	// From here on a message is several datagrams: one at a time a processor offers no
	// more than a shaper of 1 Gbit/s lets pass, as it sets a timer for each.
	single = 1e9 // bit/s
)

// openUDP makes one socket in To, and one a flow in From.
func (r *Running) openUDP() error {
	s := r.stream
	far, err := s.To.bind(&net.UDPAddr{Port: int(s.Port)})
	if err != nil {
		return fmt.Errorf("listen in %s: %w", s.To.Name, err)
	}
	r.conns = append(r.conns, far)
	to := s.called()
	if to.Port() == 0 {
		to = netip.AddrPortFrom(to.Addr(), uint16(far.LocalAddr().(*net.UDPAddr).Port))
	}
	var near []*net.UDPConn
	for range s.flows() {
		c, err := s.From.call(to)
		if err != nil {
			return err
		}
		near, r.conns = append(near, c), append(r.conns, c)
	}
	if !s.Reverse {
		r.senders = append(r.senders, func() error { return r.sendUDP(near, nil) })
		r.busy.Go(func() { r.note(r.drainUDP(far)) })
		return nil
	}
	peers, err := greet(near, far)
	if err != nil {
		return err
	}
	r.senders = append(r.senders, func() error { return r.sendUDP([]*net.UDPConn{far}, peers) })
	for _, c := range near {
		r.busy.Go(func() { r.note(r.drainUDP(c)) })
	}
	return nil
}

func (ns *NS) bind(at *net.UDPAddr) (c *net.UDPConn, err error) {
	err = ns.Do(func() (err error) { c, err = net.ListenUDP("udp", at); return err })
	if err == nil {
		err = control(c, func(fd int) error { return force(fd, udpBuffer) })
	}
	return c, err
}

func (ns *NS) call(to netip.AddrPort) (c *net.UDPConn, err error) {
	err = ns.Do(func() (err error) { c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); return err })
	if err == nil {
		err = control(c, func(fd int) error { return force(fd, udpBuffer) })
	}
	return c, err
}

// greet has every socket say hello until all are known, and returns their addresses
// as the other side sees them.
func greet(near []*net.UDPConn, far *net.UDPConn) ([]netip.AddrPort, error) {
	known := map[netip.AddrPort]bool{}
	var peers []netip.AddrPort
	buf := make([]byte, 64)
	defer func() { _ = far.SetReadDeadline(time.Time{}) }()
	return peers, Poll(func() error {
		for _, c := range near {
			_, _ = c.Write([]byte("hello"))
		}
		_ = far.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for len(known) < len(near) {
			_, from, err := far.ReadFromUDPAddrPort(buf)
			if err != nil {
				return fmt.Errorf("%d of %d hellos came: %w", len(known), len(near), err)
			}
			if !known[from] {
				known[from] = true
				peers = append(peers, from)
			}
		}
		return nil
	})
}

// sendUDP sends on all sockets in turn, or on one to all peers in turn, at the offer.
func (r *Running) sendUDP(conns []*net.UDPConn, peers []netip.AddrPort) error {
	batches, err := r.batches(conns, peers)
	if err != nil {
		return err
	}
	perSecond := float64(r.stream.Offer) / 8 / r.stream.overhead() / float64(r.stream.size())
	start, sent := time.Now(), 0.0
	for turn := 0; !r.stopped(); {
		due := time.Since(start).Seconds()*perSecond - sent
		if due < 1 {
			pause := unix.NsecToTimespec(int64(step))
			_ = unix.Nanosleep(&pause, nil)
			continue
		}
		if most := forgiven.Seconds() * perSecond; due > most+batch {
			sent += due - most
		}
		n, err := batches[turn%len(batches)].send(int(due))
		if err != nil {
			return err
		}
		turn++
		sent += float64(n)
		r.sent.Add(uint64(n * r.stream.size()))
	}
	return nil
}

// batches is one a flow.
func (r *Running) batches(conns []*net.UDPConn, peers []netip.AddrPort) ([]*batchUDP, error) {
	datagrams := 1
	if r.stream.Offer >= single {
		datagrams = 8
	}
	if peers == nil { // connected
		peers = []netip.AddrPort{{}}
	}
	var all []*batchUDP
	for _, c := range conns {
		for _, p := range peers {
			b, err := newBatch(c, p, r.stream.size(), datagrams)
			if err != nil {
				return nil, err
			}
			all = append(all, b)
		}
	}
	return all, nil
}
