// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const ready = "ready\n"

// serve answers until live ends.
func serve(port uint16, cpu int, live io.Reader, out io.Writer) error {
	listener, err := socket(unix.AF_INET6, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	datagrams, err := socket(unix.AF_INET6, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	for _, fd := range []int{listener, datagrams} {
		if err := unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)}); err != nil {
			return fmt.Errorf("bind port %d: %w", port, err)
		}
	}
	if err := cubic(listener); err != nil { // what it accepts inherits it
		return err
	}
	if err := unix.Listen(listener, 128); err != nil {
		return err
	}
	failed := make(chan error, 3)
	go func() { failed <- serveTCP(listener, cpu) }()
	go func() { failed <- serveUDP(datagrams, cpu) }()
	go func() {
		_, err := io.Copy(io.Discard, live)
		failed <- err
	}()
	if _, err := io.WriteString(out, ready); err != nil {
		return err
	}
	return <-failed
}

// serveTCP answers a byte with a byte, and more with nothing: that is a stream.
func serveTCP(listener, cpu int) error {
	if err := pin(cpu); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		fd, err := accept(listener)
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		for {
			n, err := read(fd, buf)
			if n <= 0 || err != nil {
				break // the client tells why, if it was not the end
			}
			if n == 1 {
				if _, err := write(fd, buf[:1]); err != nil {
					break
				}
			}
		}
		_ = closeFD(fd)
	}
}

// serveUDP answers the last datagram of each burst with the number that it got.
func serveUDP(fd, cpu int) error {
	if err := pin(cpu); err != nil {
		return err
	}
	buf := make([]byte, datagram)
	var got byte
	for {
		n, from, err := receiveFrom(fd, buf)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		got++
		if n == datagram && buf[0] == last {
			buf[0] = got
			// What is refused here is an answer that the client waits for: it tells.
			_ = sendTo(fd, buf[:1], from)
			got = 0
		}
	}
}
