// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Orders are what the tracer is told, by a file beside the name that it is started by: not
// every verb of package netns takes an environment.
type Orders struct {
	Plugin string        // the binary to run
	After  time.Duration // not 0: do not trace, but kill after it
	At     int           // number of the point, from 1; 0: none
	Freeze bool          // do not kill, but stop for good
	Report string        // file to write a Report to
}

// Report is what the tracer saw.
type Report struct {
	Points []string // effects in their order, up to the kill
	Killed bool
	// Tracer is the process to kill where the plugin was to be stopped; Plugin dies with it.
	Tracer, Plugin int
}

// tracer runs one plugin. All of it happens on one thread, as ptrace wants.
type tracer struct {
	pid    int
	at     int
	seen   map[int]bool // threads and children that have stopped once
	inCall map[int]call // by thread: entered and not yet returned
	report Report
	frozen func(Report) // what to do in the place of the kill; nil: kill
}

const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC |
	unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD

// trace runs the plugin with our own standard files and gives its exit status. Whatever
// the plugin started has ended too when it returns.
func trace(plugin string, at int, frozen func(Report)) (Report, unix.WaitStatus, error) {
	runtime.LockOSThread()
	// Orphans of the plugin become our children.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return Report{}, 0, fmt.Errorf("become subreaper: %w", err)
	}
	proc, err := os.StartProcess(plugin, []string{plugin}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &unix.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return Report{}, 0, err
	}
	t := &tracer{
		pid: proc.Pid, at: at, frozen: frozen, seen: map[int]bool{proc.Pid: true}, inCall: map[int]call{},
		report: Report{Tracer: os.Getpid(), Plugin: proc.Pid},
	}
	var ws unix.WaitStatus
	if _, err := wait(t.pid, &ws); err != nil {
		return Report{}, 0, err
	}
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return Report{}, 0, fmt.Errorf("set options: %w", err)
	}
	t.resume(t.pid, 0)
	status, err := t.loop()
	return t.report, status, err
}

// loop goes on until there is no child left.
func (t *tracer) loop() (status unix.WaitStatus, err error) {
	for {
		var ws unix.WaitStatus
		tid, err := wait(-1, &ws)
		if errors.Is(err, unix.ECHILD) {
			return status, nil
		}
		if err != nil {
			return status, err
		}
		switch {
		case !ws.Stopped():
			if tid == t.pid {
				status = ws
			}
			delete(t.inCall, tid)
		case ws.StopSignal() == unix.SIGTRAP|0x80:
			t.call(tid)
			t.resume(tid, 0)
		case ws.TrapCause() == unix.PTRACE_EVENT_EXEC && tid != t.pid:
			// What runs from here on is another program.
			t.point("exec")
			delete(t.inCall, tid)
			_ = unix.PtraceDetach(tid)
		case ws.TrapCause() > 0:
			t.resume(tid, 0)
		case !t.seen[tid] && ws.StopSignal() == unix.SIGSTOP:
			t.seen[tid] = true
			t.resume(tid, 0)
		default:
			t.resume(tid, ws.StopSignal())
		}
	}
}

// resume lets a thread go on to its next call. One that was killed meanwhile is no error.
func (t *tracer) resume(tid int, sig unix.Signal) { _ = unix.PtraceSyscall(tid, int(sig)) }

// point notes an effect and kills if it is the one.
func (t *tracer) point(what string) {
	if t.report.Killed {
		return
	}
	t.report.Points = append(t.report.Points, what)
	if len(t.report.Points) != t.at {
		return
	}
	if t.frozen != nil {
		t.frozen(t.report)
	} else {
		t.report.Killed = unix.Kill(t.pid, unix.SIGKILL) == nil
	}
}

// call is a thread that enters a system call, or returns from one.
func (t *tracer) call(tid int) {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return
	}
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY:
		t.inCall[tid] = call{pid: t.pid, tid: tid, nr: info.data[0], args: [6]uint64(info.data[1:7])}
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		c, ok := t.inCall[tid]
		delete(t.inCall, tid)
		if !ok || !isThread(t.pid, tid) {
			return
		}
		if what := c.effect(int64(info.data[0])); what != "" {
			t.point(what)
		}
	}
}

// syscallInfo is struct ptrace_syscall_info, the same on every architecture.
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	data [7]uint64 // entry: number and arguments; exit: result
}

func isThread(pid, tid int) bool {
	_, err := os.Lstat(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
	return err == nil
}

func wait(pid int, ws *unix.WaitStatus) (int, error) {
	for {
		tid, err := unix.Wait4(pid, ws, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return tid, err
		}
	}
}

func (r Report) write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+"~", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}
