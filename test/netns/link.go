// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Link is a packet socket on one device: it puts frames there as they are, and sees
// what comes in and goes out.
type Link struct {
	Dev   string
	Index int
	MAC   net.HardwareAddr

	fd    int
	once  sync.Once
	sends []mmsg // of Burst
}

// Link opens a packet socket on a device; it is closed when the test ends. What passed
// before is not seen.
func (ns *NS) Link(tb testing.TB, dev string) *Link {
	tb.Helper()
	l := &Link{Dev: dev, fd: -1}
	err := ns.Do(func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		l.Index, l.MAC = i.Index, i.HardwareAddr
		l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
		return unix.Bind(l.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: i.Index})
	})
	if err != nil {
		tb.Fatalf("open packet socket on %s of %s: %v", dev, ns.Name, err)
	}
	tb.Cleanup(l.Close)
	return l
}

// Close is idempotent.
func (l *Link) Close() { l.once.Do(func() { _ = unix.Close(l.fd) }) }

// Send puts one frame, from the Ethernet header on, onto the wire.
func (l *Link) Send(frame []byte) error {
	err := unix.Sendto(l.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Index, Halen: 6})
	if err != nil {
		return fmt.Errorf("send frame on %s: %w", l.Dev, err)
	}
	return nil
}

// Next returns the next frame that wanted accepts, and passes over the others. It
// waits for Patience.
func (l *Link) Next(wanted func(frame []byte) bool) ([]byte, error) {
	var found []byte
	err := Poll(func() error {
		frame, err := l.TryNext(wanted)
		if frame == nil && err == nil {
			err = fmt.Errorf("no such frame on %s", l.Dev)
		}
		found = frame
		return err
	})
	return found, err
}

// TryNext is Next for what has passed already; nil if there is no such frame.
func (l *Link) TryNext(wanted func(frame []byte) bool) ([]byte, error) {
	buf := make([]byte, 65536)
	for {
		n, _, err := unix.Recvfrom(l.fd, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("receive on %s: %w", l.Dev, err)
		case wanted(buf[:n]):
			return buf[:n], nil
		}
	}
}

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}
