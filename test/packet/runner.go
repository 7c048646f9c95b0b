// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FrameMax is the longest frame that a Runner takes, and the kernel at one piece.
const FrameMax = 3072

// Runner runs packets one after the other with nothing in between: one system call a
// packet, no copy that the kernel does not make, no garbage. It belongs to the node's
// thread (Node.Do).
type Runner struct {
	programs  map[string]int
	in, out   []byte
	ctx, seen Context
	attr      testRun
	pinner    runtime.Pinner
}

// testRun is the member `test` of union bpf_attr.
type testRun struct {
	prog, verdict     uint32
	lenIn, lenOut     uint32
	dataIn, dataOut   uint64
	repeat, duration  uint32
	ctxIn, ctxOut     uint32
	ctxAt, ctxOutAt   uint64
	flags, cpu, batch uint32
	_                 uint32
}

// NewRunner makes a runner for the programs of the node's object.
func (n *Node) NewRunner(tb testing.TB) *Runner {
	tb.Helper()
	r := &Runner{programs: map[string]int{}, in: make([]byte, FrameMax), out: make([]byte, FrameMax+64)}
	for name, p := range n.Object.Programs {
		r.programs[name] = p.FD()
	}
	// The kernel is told their addresses as numbers.
	r.pinner.Pin(r)
	r.pinner.Pin(&r.in[0])
	r.pinner.Pin(&r.out[0])
	tb.Cleanup(r.pinner.Unpin)
	return r
}

// Run runs a program on a packet. The frame that it returns is good until the next run.
// The error is the kernel's, which takes no frame that is shorter than its headers.
func (r *Runner) Run(in In) (verdict int32, frame []byte, err error) {
	copy(r.in, in.Frame)
	r.ctx = in.context()
	r.attr = testRun{
		prog: uint32(r.programs[in.Program]), flags: in.Flags,
		lenIn: uint32(len(in.Frame)), dataIn: address(&r.in[0]), lenOut: uint32(len(r.out)), dataOut: address(&r.out[0]),
		ctxIn: uint32(unsafe.Sizeof(r.ctx)), ctxAt: address(&r.ctx),
		ctxOut: uint32(unsafe.Sizeof(r.seen)), ctxOutAt: address(&r.seen),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&r.attr)), unsafe.Sizeof(r.attr))
	if errno != 0 {
		return 0, nil, errno
	}
	if r.seen.Mark != foreignMark || r.seen.Cb[4] != foreignMark {
		return 0, nil, fmt.Errorf("run %s: mark %#x, cb %#x: somebody else's value was overwritten", in.Program, r.seen.Mark, r.seen.Cb)
	}
	return int32(r.attr.verdict), r.out[:r.attr.lenOut], nil
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }
