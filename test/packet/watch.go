// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Seen is what a program leaves behind and BPF_PROG_TEST_RUN does not tell.
type Seen struct {
	TcIndex  uint16
	PktType  uint8
	Redirect Target // if the program called a redirect helper
}

// Target is where a redirect leads.
type Target struct {
	Ifindex int
	Kind    RedirectKind
	NextHop netip.Addr // of a Neighbour redirect
}

// RedirectKind is the helper that made a redirect.
type RedirectKind string

// The kinds.
const (
	Egress    RedirectKind = "redirect"
	Ingress   RedirectKind = "redirect to ingress"
	Peer      RedirectKind = "redirect_peer"
	Neighbour RedirectKind = "redirect_neigh"
)

// Flags of struct bpf_redirect_info; the two internal ones moved in 6.14.
const (
	flagIngress = 1 << 0
	flagNeigh   = 1<<1 | 1<<16
	flagPeer    = 1<<2 | 1<<17
)

// watcher is a program that goes on in the program under test by a tail call, after it
// put cb[0] into tc_index and, if cb[2] says so, a VLAN tag beside the packet. Run on the same packet once more, it looks at what that one
// left: __sk_buff by itself, the target of a redirect in the kernel's memory.
type watcher struct {
	prog   *ebpf.Program
	next   *ebpf.Map
	seen   *ebpf.Map
	layout layout
}

// Places in cb.
const (
	cbStamp = iota
	cbRuns
	cbTag
	cbPktType
	cbTcIndex = cbTag
)

func newWatcher() (w *watcher, err error) {
	w = &watcher{}
	if w.layout, err = readLayout(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	w.next, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return w, fmt.Errorf("make map of the watcher: %w", err)
	}
	size := uint32(w.layout.size)
	w.seen, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1})
	if err != nil {
		return w, fmt.Errorf("make map of the watcher: %w", err)
	}
	w.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "watch", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: w.instructions(),
	})
	if err != nil {
		return w, fmt.Errorf("load watcher: %w", err)
	}
	return w, nil
}

func (w *watcher) instructions() asm.Instructions {
	var ctx Context
	cb := func(i int) int16 { return int16(unsafe.Offsetof(ctx.Cb)) + int16(i*4) }
	tcIndex, pktType := int16(unsafe.Offsetof(ctx.TcIndex)), int16(unsafe.Offsetof(ctx.PktType))
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, cb(cbRuns), asm.Word),
		asm.JNE.Imm(asm.R2, 0, "look"),

		asm.Mov.Imm(asm.R2, 1),
		asm.StoreMem(asm.R6, cb(cbRuns), asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, cb(cbStamp), asm.Word),
		asm.StoreMem(asm.R6, tcIndex, asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, cb(cbTag), asm.Word),
		asm.JEq.Imm(asm.R2, 0, "go"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0x0081), // htons(ETH_P_8021Q)
		asm.Mov.Imm(asm.R3, 0),
		asm.FnSkbVlanPush.Call(),

		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("go"),
		asm.LoadMapPtr(asm.R2, w.next.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, -2), // no verdict of ours
		asm.Return(),

		asm.LoadMem(asm.R2, asm.R6, tcIndex, asm.Word).WithSymbol("look"),
		asm.StoreMem(asm.R6, cb(cbTcIndex), asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, pktType, asm.Word),
		asm.StoreMem(asm.R6, cb(cbPktType), asm.R2, asm.Word),
	}
	ins = append(ins, w.layout.pointer...) // into R3
	return append(ins,
		asm.LoadMapValue(asm.R1, w.seen.FD(), 0),
		asm.Mov.Imm(asm.R2, int32(w.layout.size)),
		asm.FnProbeReadKernel.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
}

// Watch runs a program on a packet, as Run does, and tells what it left behind.
func (n *Node) Watch(tb testing.TB, in In) Seen {
	tb.Helper()
	w := n.Object.watcher
	if err := w.next.Put(uint32(0), n.Object.Programs[in.Program]); err != nil {
		tb.Fatalf("enter %s: %v", in.Program, err)
	}
	ctx := in.context()
	var after Context
	opts := ebpf.RunOptions{Data: in.Frame, DataOut: make([]byte, len(in.Frame)+64), Context: &ctx,
		ContextOut: &after, Repeat: 2}
	n.Do(tb, func() error {
		_, err := w.prog.Run(&opts)
		return err
	})
	target, err := w.target()
	if err != nil {
		tb.Fatal(err)
	}
	return Seen{uint16(after.Cb[cbTcIndex]), uint8(after.Cb[cbPktType]), target}
}

func (w *watcher) target() (Target, error) {
	info, err := w.seen.LookupBytes(uint32(0))
	if err != nil || info == nil {
		return Target{}, errors.Join(errors.New("read what the watcher saw"), err)
	}
	flags := binary.NativeEndian.Uint32(info[w.layout.flags:])
	t := Target{Ifindex: int(binary.NativeEndian.Uint32(info[w.layout.target:]))}
	switch {
	case flags&flagPeer != 0:
		t.Kind = Peer
	case flags&flagNeigh != 0:
		t.Kind, t.NextHop = Neighbour, nextHop(info[w.layout.nextHop:])
	case flags&flagIngress != 0:
		t.Kind = Ingress
	default:
		t.Kind = Egress
	}
	return t, nil
}

// nextHop decodes struct bpf_nh_params: family and address.
func nextHop(b []byte) netip.Addr {
	if binary.NativeEndian.Uint32(b) == 2 {
		return netip.AddrFrom4([4]byte(b[4:]))
	}
	return netip.AddrFrom16([16]byte(b[4:]))
}

func (w *watcher) close() {
	w.prog.Close()
	w.next.Close()
	w.seen.Close()
}
