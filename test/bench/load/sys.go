// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls below block without telling the Go scheduler, which would have the
// thread stand in line when it comes back.

func read(fd int, b []byte) (int, error)  { return readWrite(unix.SYS_READ, fd, b) }
func write(fd int, b []byte) (int, error) { return readWrite(unix.SYS_WRITE, fd, b) }

func readWrite(call uintptr, fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func accept(fd int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func closeFD(fd int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func receiveFrom(fd int, b []byte) (int, *unix.RawSockaddrInet6, error) {
	var from unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(from))
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		0, uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, nil, errno
	}
	return int(n), &from, nil
}

func sendTo(fd int, b []byte, to *unix.RawSockaddrInet6) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		0, uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to))
	if errno != 0 {
		return errno
	}
	return nil
}

// connect opens a socket to the server. Being refused or not answered is an error.
func (c call) connect(kind int) (int, error) {
	family := unix.AF_INET6
	if c.to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := socket(family, kind)
	if err != nil {
		return 0, err
	}
	var errno unix.Errno
	port := c.to.Port()<<8 | c.to.Port()>>8
	if family == unix.AF_INET {
		to := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port, Addr: c.to.Addr().As4()}
		_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to))
	} else {
		to := unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: c.to.Addr().As16()}
		_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to))
	}
	if errno != 0 {
		_ = closeFD(fd)
		return 0, fmt.Errorf("connect: %w", errno)
	}
	return fd, nil
}

// cubic: the machine's default may be bbr, which paces itself. (A connection that carries
// one byte keeps the default: another system call would be timed with it.)
func cubic(fd int) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"); err != nil {
		return fmt.Errorf("set TCP_CONGESTION: %w", err)
	}
	return nil
}

// socket makes a blocking one.
func socket(family, kind int) (int, error) {
	r, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind|unix.SOCK_CLOEXEC), 0)
	if errno != 0 {
		return 0, fmt.Errorf("make socket: %w", errno)
	}
	return int(r), nil
}

// pin gives the goroutine a thread of its own, on one processor. SCHED_BATCH: who is woken
// waits until the other blocks, so that a burst is not torn apart by how the scheduler
// feels. The priority keeps away what else wants the processor. Each goroutine pins
// itself: the runtime starts threads when it likes.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to processor %d: %w", cpu, err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH, Nice: -15}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("set scheduling policy: %w", err)
	}
	return nil
}

// cpuClocks are those of this process, the server and the processor's ksoftirqd, which
// takes packets over when there are many.
func cpuClocks(server, cpu int) ([]int32, error) {
	clocks := []int32{unix.CLOCK_PROCESS_CPUTIME_ID, cpuClock(server)}
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	for _, comm := range comms {
		name, err := os.ReadFile(comm)
		if err != nil || string(bytes.TrimSpace(name)) != fmt.Sprintf("ksoftirqd/%d", cpu) {
			continue // it may have ended by now
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(comm)))
		if err != nil {
			return nil, err
		}
		return append(clocks, cpuClock(pid)), nil
	}
	return clocks, nil // in a container that does not show it
}

// cpuClock is clock_getcpuclockid(3).
func cpuClock(pid int) int32 { return ^int32(pid)<<3 | 2 }

func cpuTime(clocks []int32) time.Duration {
	var sum time.Duration
	for _, c := range clocks {
		var ts unix.Timespec
		if unix.ClockGettime(c, &ts) == nil {
			sum += time.Duration(ts.Nano())
		}
	}
	return sum
}
