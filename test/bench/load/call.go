// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	datagram = 64
	burst    = 32 // datagrams before the client waits: no queue on the way is that short
	last     = 1  // first byte of the last of them
	warmup   = 50 * time.Millisecond
	chunk    = 128 << 10
)

type call struct {
	kind        Kind
	to          netip.AddrPort
	time        time.Duration
	server, cpu int
}

// op does one operation, or a few at once, and says how many.
type op func() (int, error)

func (c call) run() (Result, error) {
	if err := pin(c.cpu); err != nil {
		return Result{}, err
	}
	clocks, err := cpuClocks(c.server, c.cpu)
	if err != nil {
		return Result{}, err
	}
	var r Result
	var do op
	switch c.kind {
	case RR:
		do, err = c.rr()
	case CRR:
		do = c.crr
	case UDP:
		do, err = c.udp(&r)
	case Stream:
		do, err = c.stream()
	default:
		err = errors.New("no such kind of client")
	}
	if err != nil {
		return r, err
	}
	for start := time.Now(); time.Since(start) < warmup; {
		if _, err := do(); err != nil {
			return r, fmt.Errorf("warm up: %w", err)
		}
	}
	r.Lost = 0
	return c.measure(r, do, clocks)
}

// measure runs op after op. What it keeps of each is allocated before.
func (c call) measure(r Result, do op, clocks []int32) (Result, error) {
	r.Ops = 0
	took := make([]time.Duration, 0, c.time/time.Microsecond)
	before := cpuTime(clocks)
	start := time.Now()
	for at := time.Duration(0); at < c.time; {
		n, err := do()
		if err != nil {
			return r, fmt.Errorf("after %d: %w", r.Ops, err)
		}
		now := time.Since(start)
		if len(took) < cap(took) {
			took = append(took, now-at)
		}
		at = now
		r.Ops += n
	}
	r.CPU = cpuTime(clocks) - before
	if c.kind == RR || c.kind == CRR {
		slices.Sort(took)
		r.P50 = took[len(took)/2]
	}
	return r, nil
}

func (c call) rr() (op, error) {
	fd, err := c.connect(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	var b [1]byte
	return func() (int, error) { return 1, ask(fd, b[:]) }, cubic(fd)
}

func (c call) crr() (int, error) {
	fd, err := c.connect(unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	var b [1]byte
	err = ask(fd, b[:])
	return 1, errors.Join(err, closeFD(fd))
}

func (c call) udp(r *Result) (op, error) {
	fd, err := c.connect(unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	var more, end [datagram]byte
	var answer [1]byte
	end[0] = last
	return func() (int, error) {
		for range burst - 1 {
			if _, err := write(fd, more[:]); err != nil {
				return 0, err
			}
		}
		if _, err := write(fd, end[:]); err != nil {
			return 0, err
		}
		if _, err := read(fd, answer[:]); err != nil {
			return 0, fmt.Errorf("wait for the answer to %d datagrams: %w", burst, err)
		}
		r.Lost += burst - int(answer[0])
		return burst, nil
	}, nil
}

func (c call) stream() (op, error) {
	fd, err := c.connect(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, chunk)
	return func() (int, error) { return write(fd, buf) }, cubic(fd)
}

func ask(fd int, b []byte) error {
	if _, err := write(fd, b); err != nil {
		return err
	}
	n, err := read(fd, b)
	if err == nil && n == 0 {
		err = errors.New("the server hung up")
	}
	return err
}
