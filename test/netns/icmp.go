// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ICMP types, RFC 792 and RFC 4443, 4861.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
	routerAdvert             = 134
)

// Ping sends one echo request of size payload bytes and waits for its reply.
func (ns *NS) Ping(to netip.Addr, size int, timeout time.Duration) error {
	var pc net.PacketConn
	if err := ns.Do(func() (err error) { pc, err = net.ListenPacket(icmpNetwork(to), ""); return err }); err != nil {
		return fmt.Errorf("ping: open socket: %w", err)
	}
	defer pc.Close()
	msg, reply := echoMessage(to.Is6(), uint16(nonce.Add(1)), bytes.Repeat([]byte{'p'}, size))
	if _, err := pc.WriteTo(msg, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()}); err != nil {
		return fmt.Errorf("ping %s from %s: %w", to, ns.Name, err)
	}
	_ = pc.SetReadDeadline(time.Now().Add(timeout))
	buf := make([]byte, 65536)
	for {
		m, from, err := pc.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("ping %s from %s, %d bytes: no reply: %w", to, ns.Name, size, err)
		}
		if m < 8 || buf[0] != reply || !bytes.Equal(buf[4:8], msg[4:8]) {
			continue
		}
		if !bytes.Equal(buf[8:m], msg[8:]) {
			return fmt.Errorf("ping %s from %s: reply is not what was sent", to, ns.Name)
		}
		if got := from.String(); got != to.String() {
			return fmt.Errorf("ping %s from %s: reply came from %s", to, ns.Name, got)
		}
		return nil
	}
}

func icmpNetwork(a netip.Addr) string {
	if a.Is6() {
		return "ip6:ipv6-icmp"
	}
	return "ip4:icmp"
}

// echo sends one request and waits for its reply.
func echo(conn *net.IPConn, v6 bool) error {
	msg, reply := echoMessage(v6, uint16(nonce.Add(1)), nil)
	if _, err := conn.Write(msg); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFromIP(buf)
		if err != nil {
			return err
		}
		if n >= 8 && buf[0] == reply && bytes.Equal(buf[4:8], msg[4:8]) {
			return nil
		}
	}
}

// echoMessage is an echo request with a sequence number of 1, and the type of its reply.
func echoMessage(v6 bool, id uint16, payload []byte) (msg []byte, reply byte) {
	msg, reply = []byte{echoRequest4, 0, 0, 0}, echoReply4
	if v6 {
		msg[0], reply = echoRequest6, echoReply6
	}
	msg = binary.BigEndian.AppendUint16(msg, id)
	msg = binary.BigEndian.AppendUint16(msg, 1)
	msg = append(msg, payload...)
	if !v6 { // the kernel fills in ICMPv6's
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	return msg, reply
}

// Advertise sends one router advertisement without prefixes on a device.
func (ns *NS) Advertise(dev string, lifetime time.Duration) error {
	msg := make([]byte, 16)
	msg[0], msg[4] = routerAdvert, 64
	binary.BigEndian.PutUint16(msg[6:], uint16(lifetime/time.Second))
	return ns.Do(func() error {
		pc, err := net.ListenPacket("ip6:ipv6-icmp", "")
		if err != nil {
			return err
		}
		defer pc.Close()
		err = control(pc.(*net.IPConn), func(fd int) error {
			return errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0))
		})
		if err != nil {
			return err
		}
		_, err = pc.WriteTo(msg, &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: dev})
		return err
	})
}

func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	return ^uint16(sum)
}
