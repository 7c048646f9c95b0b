// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Running is a Stream that has been started.
type Running struct {
	stream    Stream
	got, sent atomic.Uint64 // payload bytes
	quit      chan struct{}
	conns     []net.Conn
	senders   []func() error // what begin starts
	once      sync.Once
	busy      sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// open connects everything; nothing is sent but hellos until begin.
func (s Stream) open() (*Running, error) {
	r := &Running{stream: s, quit: make(chan struct{})}
	open := r.openTCP
	if s.Proto == "udp" {
		open = r.openUDP
	}
	if err := open(); err != nil {
		r.Stop()
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return r, nil
}

// begin starts the senders.
func (r *Running) begin() {
	for _, send := range r.senders {
		r.busy.Go(func() { r.note(send()) })
	}
}

// Total is the bytes at the wire that have arrived.
func (r *Running) Total() uint64 { return uint64(float64(r.got.Load()) * r.stream.overhead()) }

// Sent is the bytes at the wire that have been handed to the kernel, whatever
// became of them.
func (r *Running) Sent() uint64 { return uint64(float64(r.sent.Load()) * r.stream.overhead()) }

// Stop ends the load. What TCP has not sent yet is thrown away. Idempotent.
func (r *Running) Stop() {
	r.once.Do(func() {
		close(r.quit)
		for _, c := range r.conns {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
		r.busy.Wait()
		for _, c := range r.conns {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetLinger(0)
			}
			_ = c.Close()
		}
	})
}

// Err is what ended a flow before Stop.
func (r *Running) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}

func (r *Running) note(err error) {
	if err == nil || r.stopped() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, fmt.Errorf("%s: %w", r.stream, err))
}

func (r *Running) stopped() bool {
	select {
	case <-r.quit:
		return true
	default:
		return false
	}
}

// force gives a socket buffers that no sysctl bounds.
func force(fd, bytes int) error {
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bytes))
}
