// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Outcome is what became of a Try: an answer, or the ICMP error that the socket was
// told of.
type Outcome struct {
	Answered   bool
	Errno      unix.Errno // ECONNREFUSED for a port unreachable
	By         netip.Addr // who sent the error
	Type, Code uint8      // of ICMP or ICMPv6; 0 of an error without
	MTU        uint32     // of a frag-needed or packet-too-big
}

func (o Outcome) String() string {
	if o.Answered {
		return "an answer"
	}
	return fmt.Sprintf("%v by %s (ICMP %d/%d)", o.Errno, o.By, o.Type, o.Code)
}

// Try makes one call with a TTL (0: the usual one) from a connected socket that wants
// to hear of errors: TCP connects, UDP sends one datagram of c.Size bytes that may not
// be fragmented. Neither an answer nor an error within c.Timeout is an error.
func (ns *NS) Try(c Call, ttl int) (Outcome, error) {
	if c.Timeout == 0 {
		c.Timeout, _ = patience()
	}
	var o Outcome
	err := ns.Do(func() (err error) { o, err = try(c, ttl); return err })
	if err != nil {
		err = fmt.Errorf("%s, TTL %d: %w", c, ttl, err)
	}
	return o, err
}

func try(c Call, ttl int) (Outcome, error) {
	fd, err := listening(c, ttl)
	if err != nil {
		return Outcome{}, err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, Sockaddr(c.To))
	if err == nil && c.Proto == "udp" {
		_, err = unix.Write(fd, make([]byte, max(c.Size, 1)))
	}
	if errors.Is(err, unix.EMSGSIZE) {
		return Outcome{Errno: unix.EMSGSIZE}, nil
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return Outcome{}, err
	}
	return outcome(fd, c)
}

// listening is a socket that is told of ICMP errors.
func listening(c Call, ttl int) (int, error) {
	family, level, opts := unix.AF_INET, unix.IPPROTO_IP, [3]int{unix.IP_RECVERR, unix.IP_TTL, unix.IP_MTU_DISCOVER}
	if c.To.Addr().Is6() {
		family, level, opts = unix.AF_INET6, unix.IPPROTO_IPV6, [3]int{unix.IPV6_RECVERR, unix.IPV6_UNICAST_HOPS, unix.IPV6_MTU_DISCOVER}
	}
	kind := unix.SOCK_STREAM
	if c.Proto == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	errs := []error{unix.SetsockoptInt(fd, level, opts[0], 1)}
	if ttl > 0 {
		errs = append(errs, unix.SetsockoptInt(fd, level, opts[1], ttl))
	}
	if c.Proto == "udp" {
		errs = append(errs, unix.SetsockoptInt(fd, level, opts[2], unix.IP_PMTUDISC_DO))
	}
	if c.From.IsValid() {
		errs = append(errs, unix.Bind(fd, Sockaddr(c.From)))
	}
	if err := errors.Join(errs...); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func outcome(fd int, c Call) (Outcome, error) {
	want := int16(unix.POLLIN)
	if c.Proto == "tcp" {
		want = unix.POLLOUT
	}
	deadline := time.Now().Add(c.Timeout)
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: want}}
		n, err := unix.Poll(p, max(int(time.Until(deadline).Milliseconds()), 0))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return Outcome{}, err
		case n == 0:
			return Outcome{}, errors.New("neither an answer nor an error")
		case p[0].Revents&unix.POLLERR != 0:
			return queued(fd)
		default:
			return Outcome{Answered: true}, nil
		}
	}
}

// queued reads the socket's error queue; an error that was not queued (a reset) is the
// socket's own.
func queued(fd int) (Outcome, error) {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Errno: unix.Errno(errno)}
	oob := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 64), oob, unix.MSG_ERRQUEUE)
	if errors.Is(err, unix.EAGAIN) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return o, err
	}
	for _, m := range msgs { // struct sock_extended_err, then the sender's address
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR && len(m.Data) >= 24:
			o.By = netip.AddrFrom4([4]byte(m.Data[20:]))
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR && len(m.Data) >= 40:
			o.By = netip.AddrFrom16([16]byte(m.Data[24:]))
		default:
			continue
		}
		o.Errno = unix.Errno(binary.NativeEndian.Uint32(m.Data))
		o.Type, o.Code, o.MTU = m.Data[5], m.Data[6], binary.NativeEndian.Uint32(m.Data[8:])
	}
	return o, nil
}
