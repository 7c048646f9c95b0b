// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

// sink serves connections whose rate it counts, to their end, and tells them then.
func sink() error {
	return accept(sinkPort, func(conn net.Conn) { fmt.Fprintf(conn, "%.0f\n", rate(conn)) })
}

// push fills a connection to a sink for this long: by large writes, so that what is in between is
// measured and not the two programs.
func push(addr string, span time.Duration) (string, error) {
	conn, err := dial(addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(span + 20*time.Second))
	chunk := make([]byte, chunkSize)
	for start := time.Now(); time.Since(start) < span; {
		if _, err := conn.Write(chunk); err != nil {
			return "", err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	bits, err := io.ReadAll(conn)
	return string(bits), err
}
