// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchUDP is messages that one system call sends or receives. All have one buffer, of
// one or more datagrams.
type batchUDP struct {
	raw  func(func(fd uintptr)) error
	each int // datagrams a message
	msgs [batch]mmsg
	vec  unix.Iovec
	name any // what msgs point at
}

// newBatch has messages of that many datagrams, which the kernel cuts where they leave
// or arrive (UDP_SEGMENT).
func newBatch(c *net.UDPConn, to netip.AddrPort, size, datagrams int) (*batchUDP, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if datagrams > 1 {
		if err := control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, size) }); err != nil {
			return nil, fmt.Errorf("set UDP_SEGMENT: %w", err)
		}
	}
	b := &batchUDP{raw: raw.Control, each: datagrams}
	payload := make([]byte, size*datagrams)
	b.vec.Base = &payload[0]
	b.vec.SetLen(len(payload))
	for i := range b.msgs {
		b.msgs[i].hdr.Iov = &b.vec
		b.msgs[i].hdr.SetIovlen(1)
	}
	if to.IsValid() { // the socket is one of IPv6 that takes both
		a := unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: htons(to.Port()), Addr: to.Addr().As16()}
		b.name = &a
		for i := range b.msgs {
			b.msgs[i].hdr.Name = (*byte)(unsafe.Pointer(&a))
			b.msgs[i].hdr.Namelen = uint32(unsafe.Sizeof(a))
		}
	}
	return b, nil
}

// send hands messages of at most n datagrams to the kernel and returns how many that
// were. What a shaper in the sender's own device refuses is not an error.
func (b *batchUDP) send(n int) (int, error) {
	n = min(max(n/b.each, 1), batch/b.each)
	var errno unix.Errno
	err := b.raw(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	})
	runtime.KeepAlive(b)
	switch errno {
	case 0, unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ECONNREFUSED:
		return n * b.each, err
	}
	return 0, errors.Join(err, errno)
}

// drainUDP counts and does not copy (MSG_TRUNC). It lets some arrive before it asks
// again, as waking up for each costs more than they do.
func (r *Running) drainUDP(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	b, err := newBatch(c, netip.AddrPort{}, 1, 1)
	if err != nil {
		return err
	}
	for {
		var n uintptr
		var errno unix.Errno
		err := raw.Read(func(fd uintptr) bool {
			n, _, errno = unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.msgs[0])), batch, unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
			return errno != unix.EAGAIN && errno != unix.EINTR
		})
		if err != nil {
			return err
		}
		switch errno {
		case 0:
		case unix.ECONNREFUSED: // of a hello that came too early
			continue
		default:
			return errno
		}
		for _, m := range b.msgs[:n] {
			if int(m.len) == r.stream.size() { // not a hello
				r.got.Add(uint64(m.len))
			}
		}
		if n < batch {
			pause := unix.NsecToTimespec(int64(step))
			_ = unix.Nanosleep(&pause, nil)
		}
	}
}
