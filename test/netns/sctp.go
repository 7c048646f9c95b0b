// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// NeedsSCTP skips a test where the kernel has no SCTP (modprobe sctp).
func NeedsSCTP(tb testing.TB) {
	tb.Helper()
	fd, err := sctpSocket(netip.IPv4Unspecified())
	if err != nil {
		tb.Skipf("the kernel has no SCTP: %v", err)
	}
	_ = unix.Close(fd)
}

// ServeSCTP answers on one address, one-to-one style, with the name of the namespace and
// the peer's address; it ends with the test. Bound to one address, an association names
// no others, which translation would have to know of.
func (ns *NS) ServeSCTP(tb testing.TB, at netip.AddrPort) {
	tb.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		if fd, err = sctpSocket(at.Addr()); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, Sockaddr(at)), unix.Listen(fd, 16))
	})
	if err != nil {
		tb.Fatalf("serve SCTP at %s of %s: %v", at, ns.Name, err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	tb.Cleanup(func() { close(stop); <-done; _ = unix.Close(fd) })
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				ns.acceptSCTP(fd)
			}
		}
	}()
}

// acceptSCTP serves one association, or gives up after a moment.
func (ns *NS) acceptSCTP(listener int) {
	if pollSCTP(listener, unix.POLLIN, 20*time.Millisecond) != nil {
		return
	}
	fd, peer, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	buf := make([]byte, 65536)
	for pollSCTP(fd, unix.POLLIN, Patience) == nil {
		n, err := unix.Read(fd, buf)
		if n <= 0 || err != nil {
			return
		}
		if _, err := unix.Write(fd, fmt.Appendf(nil, "%s %s %d", ns.Name, AddrPortOf(peer), n)); err != nil {
			return
		}
	}
}

// AskSCTP makes an association, asks with so many bytes, three times, and returns the
// Server and Remote of the answers.
func (ns *NS) AskSCTP(from netip.Addr, to netip.AddrPort, size int) (r Reply, err error) {
	err = ns.Do(func() (err error) { r, err = askSCTP(from, to, size); return err })
	if err != nil {
		err = fmt.Errorf("sctp %s -> %s: %w", from, to, err)
	}
	return r, err
}

func askSCTP(from netip.Addr, to netip.AddrPort, size int) (r Reply, err error) {
	fd, err := sctpSocket(from)
	if err != nil {
		return r, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, Sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
		return r, err
	}
	if err := unix.Connect(fd, Sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return r, err
	}
	if err := pollSCTP(fd, unix.POLLOUT, Patience); err != nil {
		return r, fmt.Errorf("associate: %w", err)
	}
	buf := make([]byte, 512)
	for range 3 {
		if _, err := unix.Write(fd, make([]byte, size)); err != nil {
			return r, err
		}
		if err := pollSCTP(fd, unix.POLLIN, Patience); err != nil {
			return r, fmt.Errorf("answer: %w", err)
		}
		n, err := unix.Read(fd, buf)
		if err != nil {
			return r, err
		}
		words := strings.Fields(string(buf[:n]))
		if len(words) != 3 || words[2] != fmt.Sprint(size) {
			return r, fmt.Errorf("answer %q is not to %d bytes", buf[:n], size)
		}
		r.Server = words[0]
		if r.Remote, err = netip.ParseAddrPort(words[1]); err != nil {
			return r, err
		}
	}
	return r, nil
}

func sctpSocket(a netip.Addr) (int, error) {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
}

func pollSCTP(fd int, events int16, most time.Duration) error {
	deadline := time.Now().Add(most)
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, max(int(time.Until(deadline).Milliseconds()), 0))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errors.New("nothing came")
		case p[0].Revents&unix.POLLERR != 0:
			errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			return errors.Join(err, unix.Errno(errno))
		default:
			return nil
		}
	}
}
