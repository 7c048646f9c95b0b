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
	network, request, reply := "ip4:icmp", byte(echoRequest4), byte(echoReply4)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", echoRequest6, echoReply6
	}
	var pc net.PacketConn
	if err := ns.Do(func() (err error) { pc, err = net.ListenPacket(network, ""); return err }); err != nil {
		return fmt.Errorf("ping: open socket: %w", err)
	}
	defer pc.Close()
	n := nonce.Add(1)
	msg := binary.BigEndian.AppendUint16([]byte{request, 0, 0, 0}, uint16(n))
	msg = binary.BigEndian.AppendUint16(msg, 1)
	msg = append(msg, bytes.Repeat([]byte{'p'}, size)...)
	if to.Is4() { // the kernel fills in ICMPv6's
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
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
