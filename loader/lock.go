// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that somebody holds the lock for longer than LockWait and does nothing.
var ErrLocked = errors.New("locked")

// LockWait is how long a process waits for the lock of a pinPath while its holder does
// nothing. The slowest holder, a load, takes a second on a machine that is not starved.
const LockWait = 10 * time.Second

// longestWait is how long it waits for holders that work; runtimes give a plugin minutes.
const longestWait = 6 * LockWait

// patience is what is left of a process's waiting. Once it has waited in vain every
// further lock has to be free at once: what is undone after that does not wait anew.
type patience struct {
	wait    time.Duration // for a holder that does nothing
	longest time.Duration // for holders that work; no more than wait: none of them is waited for longer
	stop    <-chan struct{}
	gone    atomic.Bool
}

// lock serialises those who load, attach to shared devices or upgrade. It is held on
// the directory itself, since bpffs keeps no regular files, and ends with its holder. One
// who is stopped keeps it: then the error is ErrLocked.
func (p *patience) lock(dir string) (unlock func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s to lock it: %w", dir, err)
	}
	err = flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return p.await(dir, fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { unix.Close(fd) }, nil
}

// await waits in the kernel's queue, where each gets its turn. The thread that waits in
// vain is left behind: nothing but a signal ends flock(2), and processes of ours are
// short.
func (p *patience) await(dir string, fd int) (unlock func(), err error) {
	if p.gone.Load() {
		defer unix.Close(fd)
		return nil, locked(dir, fd, p.wait)
	}
	stop := p.stop
	select {
	case <-stop: // known before: what is undone now waits as anybody
		stop = nil
	default:
	}
	got := make(chan error, 1)
	go func() { got <- flock(fd, unix.LOCK_EX); close(got) }()
	start, before := time.Now(), work(holder(fd))
	timer := time.NewTicker(p.wait)
	defer timer.Stop()
	for {
		select {
		case err := <-got:
			if err != nil {
				unix.Close(fd)
				return nil, fmt.Errorf("lock %s: %w", dir, err)
			}
			return func() { unix.Close(fd) }, nil
		case <-stop:
			err := Fault{ErrLocked, fmt.Sprintf("told to stop while %s held the lock of %s", holderName(fd), dir), "try again"}
			return nil, p.leave(fd, got, err)
		case <-timer.C:
			waited, now := time.Since(start), work(holder(fd))
			if now != before && waited < p.longest {
				before = now
				continue
			}
			return nil, p.leave(fd, got, locked(dir, fd, waited.Round(time.Second/10)))
		}
	}
}

// leave waits no more; a lock that is got all the same is let go.
func (p *patience) leave(fd int, got <-chan error, why error) error {
	p.gone.Store(true)
	go func() {
		for range got {
			unix.Close(fd)
		}
	}()
	return why
}

// work differs between two looks if another process holds the lock by then, or the same
// one has computed meanwhile. Of one that is not to be known it never does.
func work(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// proc(5): after the name, which may hold anything, utime and stime are the 12th and 13th
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return ""
	}
	return fmt.Sprint(pid, fields[11], fields[12])
}

func flock(fd, how int) error {
	for {
		err := unix.Flock(fd, how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func locked(dir string, fd int, wait time.Duration) error {
	return Fault{ErrLocked, fmt.Sprintf("%s has held the lock of %s for more than %s", holderName(fd), dir, wait), "try again, and end that process if it hangs"}
}

// holderName names the holder where it can be known: not one in another PID namespace.
func holderName(fd int) string {
	pid := holder(fd)
	if pid <= 0 {
		return "another process"
	}
	who := fmt.Sprintf("process %d", pid)
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		who += fmt.Sprintf(" (%s)", strings.TrimSpace(string(comm)))
	}
	return who
}

// holder finds who holds a lock on an open file in /proc/locks; 0 if that is not to be
// known.
func holder(fd int) int {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)
	return findHolder(f, file)
}

// findHolder reads lines as "1: FLOCK  ADVISORY  WRITE 123 00:1f:456 0 EOF". Those who wait
// have an arrow behind the number.
func findHolder(locks io.Reader, file string) int {
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == file {
			pid, _ := strconv.Atoi(fields[4])
			return pid
		}
	}
	return 0
}

// Lock keeps every other Ensure, AttachUplink, AttachHost and DetachHost of this
// pinPath waiting until unlock is called; it does not nest. It waits as long as holders
// work, up to a minute, and LockWait for one that does not; then it is ErrLocked.
func (d *Datapath) Lock() (unlock func(), err error) { return d.opts.patience.lock(d.opts.PinPath) }
