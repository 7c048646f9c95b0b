// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openTCP makes the connections, one after the other.
func (r *Running) openTCP() error {
	s := r.stream
	var l net.Listener
	err := s.To.Do(func() (err error) {
		config := net.ListenConfig{Control: cubic} // which what it accepts inherits
		l, err = config.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", s.Port))
		return err
	})
	if err != nil {
		return fmt.Errorf("listen in %s: %w", s.To.Name, err)
	}
	defer l.Close()
	to := s.called()
	if to.Port() == 0 {
		to = netip.AddrPortFrom(to.Addr(), uint16(l.Addr().(*net.TCPAddr).Port))
	}
	for range s.flows() {
		near, far, err := s.connect(l, to)
		if err != nil {
			return err
		}
		r.conns = append(r.conns, near, far)
		from, at := near, far
		if s.Reverse {
			from, at = far, near
		}
		r.senders = append(r.senders, func() error { return r.sendTCP(from) })
		r.busy.Go(func() { r.note(r.drainTCP(at)) })
	}
	return nil
}

// connect returns both ends.
func (s Stream) connect(l net.Listener, to netip.AddrPort) (near, far *net.TCPConn, err error) {
	d := net.Dialer{Timeout: Patience, Control: cubic}
	var c net.Conn
	if err := s.From.Do(func() (err error) { c, err = d.Dial("tcp", to.String()); return err }); err != nil {
		return nil, nil, err
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(Patience))
	a, err := l.Accept()
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c.(*net.TCPConn), a.(*net.TCPConn), nil
}

func (r *Running) sendTCP(c *net.TCPConn) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Write(buf)
		r.sent.Add(uint64(n))
		if err != nil {
			return err
		}
	}
}

// drainTCP counts and does not copy (MSG_TRUNC).
func (r *Running) drainTCP(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for {
		var n uintptr
		var errno unix.Errno
		err := raw.Read(func(fd uintptr) bool {
			n, _, errno = unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), unix.MSG_TRUNC, 0, 0)
			return errno != unix.EAGAIN && errno != unix.EINTR
		})
		switch {
		case err != nil:
			return err
		case errno != 0:
			return errno
		case n == 0:
			return net.ErrClosed
		}
		r.got.Add(uint64(n))
	}
}
