// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsg is struct mmsghdr.
type mmsg struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// Burst sends many frames with few system calls and without the device's queue, which
// would drop what comes too fast.
func (l *Link) Burst(frames [][]byte) error {
	if l.sends == nil {
		if err := unix.SetsockoptInt(l.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return fmt.Errorf("bypass queue of %s: %w", l.Dev, err)
		}
		l.sends = make([]mmsg, 0, len(frames))
	}
	l.sends = l.sends[:0]
	vecs := make([]unix.Iovec, len(frames))
	for i, f := range frames {
		vecs[i].Base = &f[0]
		vecs[i].SetLen(len(f))
		m := mmsg{hdr: unix.Msghdr{Iov: &vecs[i]}}
		m.hdr.SetIovlen(1)
		l.sends = append(l.sends, m)
	}
	for sent := 0; sent < len(frames); {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(l.fd),
			uintptr(unsafe.Pointer(&l.sends[sent])), uintptr(len(frames)-sent), 0, 0, 0)
		switch {
		case errno == 0:
			sent += int(n)
		case errors.Is(errno, unix.ENOBUFS), errors.Is(errno, unix.EAGAIN), errors.Is(errno, unix.EINTR):
			runtime.Gosched()
		default:
			return fmt.Errorf("send frames on %s: %w", l.Dev, errno)
		}
	}
	runtime.KeepAlive(vecs)
	return nil
}
