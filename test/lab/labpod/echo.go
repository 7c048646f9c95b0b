// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

// echo serves connections that get back what they send.
func echo() error {
	return accept(echoPort, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
}

// roundTrips returns how many bytes a second go to and fro on one connection, one at a time.
func roundTrips(addr string, span time.Duration) (string, error) {
	conn, err := dial(addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	buf := []byte{1}
	n := 0
	start := time.Now()
	for time.Since(start) < span {
		if time.Since(start) < warmup {
			n = 0
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write(buf); err != nil {
			return "", err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return "", err
		}
		n++
	}
	return fmt.Sprintf("%.0f\n", float64(n)/(time.Since(start)-warmup).Seconds()), nil
}

func echoDial(addr string) (net.Conn, error) {
	return dial(net.JoinHostPort(addr, echoPort[1:]), newPatience)
}

// once makes a connection, has a word echoed and ends.
func once(addr string) error {
	conn, err := echoDial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(newPatience))
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}
