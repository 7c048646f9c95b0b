// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// Probe makes one call by a connected socket, which hears the called address alone
// and is told at once where nobody listens, and says from which address it called.
// A datagram without an answer is sent again from a socket that anybody may answer,
// so that the error names who did. Proto "icmp" is an echo request; its Reply is
// empty, ask the called namespace's Echoes who it came from.
func (ns *NS) Probe(c Call) (Reply, netip.Addr, error) {
	if c.Timeout == 0 {
		c.Timeout, _ = patience()
	}
	conn, err := ns.connect(c)
	if err != nil {
		return Reply{}, netip.Addr{}, fmt.Errorf("%s: %w", c, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(c.Timeout))
	switch conn := conn.(type) {
	case *net.TCPConn:
		r, err := (&Flow{call: c, tcp: conn}).Ask()
		return r, conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr(), err
	case *net.UDPConn:
		r, err := askConnected(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if _, other := ns.Ask(c); other != nil {
				err = other
			}
		}
		return r, conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr(), wrap(c, err)
	default:
		local, _ := netip.ParseAddr(conn.LocalAddr().String())
		return Reply{}, local, wrap(c, echo(conn.(*net.IPConn), c.To.Addr().Is6()))
	}
}

func wrap(c Call, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c, err)
}

// connect makes the socket of a Probe.
func (ns *NS) connect(c Call) (conn net.Conn, err error) {
	network, to := c.Proto, c.To.String()
	_, most := patience()
	d := net.Dialer{Timeout: min(c.Timeout, most)}
	switch {
	case c.Proto == "icmp":
		network, to = icmpNetwork(c.To.Addr()), c.To.Addr().String()
		if c.From.IsValid() {
			d.LocalAddr = &net.IPAddr{IP: c.From.Addr().AsSlice()}
		}
	case c.From.IsValid() && c.Proto == "udp":
		d.LocalAddr = net.UDPAddrFromAddrPort(c.From)
	case c.From.IsValid():
		d.LocalAddr = net.TCPAddrFromAddrPort(c.From)
	}
	err = ns.Do(func() (err error) { conn, err = d.Dial(network, to); return err })
	return conn, err
}

func askConnected(conn *net.UDPConn) (Reply, error) {
	req := fmt.Appendf(nil, "n%d;", nonce.Add(1))
	if _, err := conn.Write(req); err != nil {
		return Reply{}, err
	}
	buf := make([]byte, 65536)
	n, err := conn.Read(buf)
	if err != nil {
		return Reply{}, err
	}
	r, payload, err := parseReply(buf[:n])
	if err == nil && !bytes.Equal(payload, req) {
		err = fmt.Errorf("asked %q, answered %q", req, payload)
	}
	return r, err
}
