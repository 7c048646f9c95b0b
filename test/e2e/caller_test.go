// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// stall is less than the second after which a lost SYN is sent again; soon is long for
// anything that is answered at all. An emulated machine is given time.
var stall, soon = 900 * time.Millisecond, 300 * time.Millisecond

func init() {
	if netns.Emulated() {
		stall, soon = netns.Patience, time.Second
	}
}

// caller calls several addresses from one source port after the other. It makes its
// system calls itself: it is meant to be fast, and to say how a connection ends.
type caller struct {
	proto   string
	from    netip.Addr
	to      []netip.AddrPort
	seen    []netip.Addr // what the server may see; empty: anything
	lenient bool         // stalls and errors are passed over

	round int // of ports called from
	buf   [4096]byte
}

// run goes on for a time, or through so many ports (0: no matter), where it left off. It
// returns the number of answers.
func (k *caller) run(ns *netns.NS, most time.Duration, ports int) (answers int, err error) {
	const first, cycle = 20000, 1000
	deadline := time.Now().Add(most)
	err = ns.Do(func() error {
		for i := 0; (ports == 0 || i < ports) && time.Now().Before(deadline); i++ {
			port, round := uint16(first+k.round%cycle), k.round
			k.round++
			n, err := k.port(port, round)
			answers += n
			if err != nil && !k.lenient {
				return fmt.Errorf("port %d, round %d: %w", port, round, err)
			}
		}
		return nil
	})
	return answers, err
}

// port calls every address from one port: rounds differ in whether at once or in turn,
// and in how the connections end.
func (k *caller) port(port uint16, round int) (answers int, err error) {
	if k.proto == "udp" {
		return k.datagrams(port)
	}
	end := []string{"server", "reset", "client"}[round/2%3]
	if round >= 1000 && end == "client" { // its own TIME_WAIT would refuse the port
		end = "reset"
	}
	atOnce := round%2 == 0
	var open []int
	defer func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}()
	start := time.Now()
	for i, to := range k.to {
		fd, err := k.connect(port, to)
		if errors.Is(err, unix.EADDRNOTAVAIL) && round >= 1000 {
			continue
		}
		if err != nil {
			return answers, fmt.Errorf("connect %s: %w", to, err)
		}
		open = append(open, fd)
		if atOnce && i < len(k.to)-1 {
			continue
		}
		for _, fd := range open {
			if err := k.finish(fd, end, start.Add(stall)); err != nil {
				return answers, fmt.Errorf("%s (at once %v, ended by %s): %w", to, atOnce, end, err)
			}
			answers++
		}
		for _, fd := range open {
			_ = unix.Close(fd)
		}
		open, start = nil, time.Now()
	}
	return answers, nil
}

func (k *caller) connect(port uint16, to netip.AddrPort) (int, error) {
	fd, err := k.socket(unix.SOCK_STREAM, port)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, netns.Sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (k *caller) socket(kind int, port uint16) (int, error) {
	family := unix.AF_INET
	if k.from.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, netns.Sockaddr(netip.AddrPortFrom(k.from, port))); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// finish asks on a connection that may still be opening, and ends it: the caller closes.
func (k *caller) finish(fd int, end string, deadline time.Time) error {
	if err := await(fd, unix.POLLOUT, deadline); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, err := unix.Write(fd, []byte(end+"\n")); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if err := await(fd, unix.POLLIN, deadline); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	n, err := unix.Read(fd, k.buf[:])
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if err := k.judge(string(k.buf[:n])); err != nil {
		return err
	}
	switch end {
	case "server":
		if err := await(fd, unix.POLLIN, deadline); err != nil {
			return fmt.Errorf("server's end: %w", err)
		}
	case "reset":
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	return nil
}

func (k *caller) judge(answer string) error {
	client, err := netip.ParseAddrPort(strings.TrimSpace(answer))
	if err != nil || len(k.seen) > 0 && !slices.Contains(k.seen, client.Addr().Unmap().WithZone("")) {
		return fmt.Errorf("answer: the server saw %q", answer)
	}
	return nil
}

// datagrams asks all addresses by one socket; each has to answer for itself.
func (k *caller) datagrams(port uint16) (answers int, err error) {
	fd, err := k.socket(unix.SOCK_DGRAM, port)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	waiting := map[netip.AddrPort]bool{}
	for _, to := range k.to {
		if err := unix.Sendto(fd, []byte("x\n"), 0, netns.Sockaddr(to)); err != nil {
			return 0, err
		}
		waiting[to] = true
	}
	deadline := time.Now().Add(stall)
	for len(waiting) > 0 {
		if err := await(fd, unix.POLLIN, deadline); err != nil {
			return answers, fmt.Errorf("answers of %v: %w", waiting, err)
		}
		n, from, err := unix.Recvfrom(fd, k.buf[:], 0)
		if err != nil {
			return answers, err
		}
		if at := netns.AddrPortOf(from); !waiting[at] {
			return answers, fmt.Errorf("an answer came from %s, asked were %v", at, k.to)
		} else if err := k.judge(string(k.buf[:n])); err != nil {
			return answers, err
		} else {
			delete(waiting, at)
		}
		answers++
	}
	return answers, nil
}

// await polls one descriptor.
func await(fd int, events int16, deadline time.Time) error {
	for {
		left := time.Until(deadline).Milliseconds()
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, max(int(left), 0))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errors.New("stalled")
		case p[0].Revents&(unix.POLLERR) != 0:
			errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			return errors.Join(err, unix.Errno(errno))
		default:
			return nil
		}
	}
}
