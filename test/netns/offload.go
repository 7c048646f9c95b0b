// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Checksums has a device write whole checksums, as onto a real wire: otherwise a veth
// leaves the transport's to a hardware that it does not have, and an ICMP error that
// quotes such a packet quotes a wrong sum.
func (ns *NS) Checksums(tb testing.TB, dev string) {
	tb.Helper()
	value := struct{ cmd, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(req.name[:], dev)
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return errno
		}
		return nil
	})
	runtime.KeepAlive(&value)
	if err != nil {
		tb.Fatalf("switch checksum offload of %s in %s off: %v", dev, ns.Name, err)
	}
}
