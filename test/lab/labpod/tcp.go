// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// cubic takes a TCP socket off the machine's default: bbr paces itself and hides what a shaper does.
func cubic(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// Best effort: a kernel without cubic keeps its default.
		_ = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, "cubic")
	})
}

func dial(addr string, patience time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, Control: cubic}
	return d.Dial("tcp", addr)
}

func listen(port string) (net.Listener, error) {
	lc := net.ListenConfig{Control: cubic}
	l, err := lc.Listen(context.Background(), "tcp", port)
	if err != nil {
		return nil, fmt.Errorf("listen on TCP: %w", err)
	}
	return l, nil
}

// accept serves a port, each connection with a goroutine of its own.
func accept(port string, serve func(net.Conn)) error {
	l, err := listen(port)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return nil
}
