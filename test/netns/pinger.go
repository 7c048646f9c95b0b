// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Pinger sends echo requests with an identifier of the caller's choice to one address,
// as several programs of one number would.
type Pinger struct {
	to        netip.Addr
	id        uint16
	conn      net.PacketConn
	strangers int
}

// Pinger opens a raw socket in the namespace; Close closes it.
func (ns *NS) Pinger(to netip.Addr, id uint16) (*Pinger, error) {
	network := "ip4:icmp"
	if to.Is6() {
		network = "ip6:ipv6-icmp"
	}
	p := &Pinger{to: to, id: id}
	err := ns.Do(func() (err error) { p.conn, err = net.ListenPacket(network, ""); return err })
	if err != nil {
		return nil, fmt.Errorf("open ping socket in %s: %w", ns.Name, err)
	}
	return p, nil
}

// Close closes the socket.
func (p *Pinger) Close() { _ = p.conn.Close() }

// Strangers is how many replies came that had another identifier or sequence number
// than Receive waited for.
func (p *Pinger) Strangers() int { return p.strangers }

// Send sends one request.
func (p *Pinger) Send(seq uint16, payload []byte) error {
	msg := make([]byte, 8, 8+len(payload))
	msg[0] = echoRequest4
	if p.to.Is6() {
		msg[0] = echoRequest6
	}
	binary.BigEndian.PutUint16(msg[4:], p.id)
	binary.BigEndian.PutUint16(msg[6:], seq)
	msg = append(msg, payload...)
	if p.to.Is4() { // the kernel fills in ICMPv6's
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	_, err := p.conn.WriteTo(msg, &net.IPAddr{IP: p.to.AsSlice()})
	return err
}

// Receive waits for the reply to a request and returns its payload.
func (p *Pinger) Receive(seq uint16) ([]byte, error) {
	reply := byte(echoReply4)
	if p.to.Is6() {
		reply = echoReply6
	}
	answer, _ := patience()
	_ = p.conn.SetReadDeadline(time.Now().Add(answer))
	buf := make([]byte, 65536)
	for {
		n, _, err := p.conn.ReadFrom(buf)
		if err != nil {
			return nil, fmt.Errorf("ping %s: no reply %d: %w", p.to, seq, err)
		}
		if n < 8 || buf[0] != reply {
			continue
		}
		if binary.BigEndian.Uint16(buf[4:]) == p.id && binary.BigEndian.Uint16(buf[6:]) == seq {
			return buf[8:n], nil
		}
		p.strangers++
	}
}
