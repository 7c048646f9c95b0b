// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/bpf"
)

// Of struct __sk_buff in linux/bpf.h.
const (
	skbIfindex = 40
	skbTstamp  = 152
	skbWireLen = 160 // counts the headers of each segment, on the way out
)

const (
	pass, drop = 0, 2 // TCX_PASS, TCX_DROP
	retries    = 4    // lost races for the clock before a packet leaves on an old one, as in egress_limit
)

// edt is the program that gives packets their departure times, on one device.
type edt struct {
	rows *ebpf.Map
	prog *ebpf.Program
	link link.Link
}

// attach has what the device sends leave at the row's rate; a packet that would leave after
// the horizon is dropped. It runs in the device's namespace.
func attach(ifindex int, d bpf.DatapathDirection, rate uint64, horizon time.Duration) (*edt, error) {
	e := &edt{}
	err := e.load(ifindex, d, rate, horizon)
	if err == nil {
		e.link, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: e.prog, Attach: ebpf.AttachTCXEgress})
	}
	if err != nil {
		e.close()
		return nil, fmt.Errorf("attach program: %w", err)
	}
	return e, nil
}

func (e *edt) load(ifindex int, d bpf.DatapathDirection, rate uint64, horizon time.Duration) (err error) {
	key := bpf.DatapathLimitKey{Ifindex: uint32(ifindex), Direction: d}
	row := bpf.DatapathLimit{RateBits: rate}
	e.rows, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "limits", Type: ebpf.Hash, MaxEntries: 16,
		KeySize: uint32(unsafe.Sizeof(key)), ValueSize: uint32(unsafe.Sizeof(row)),
	})
	if err != nil {
		return fmt.Errorf("make map: %w", err)
	}
	if err := e.rows.Put(&key, &row); err != nil {
		return fmt.Errorf("write row: %w", err)
	}
	e.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "edt", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: depart(e.rows.FD(), d, horizon),
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return nil
}

func (e *edt) close() {
	if e.link != nil {
		_ = e.link.Close()
	}
	if e.prog != nil {
		_ = e.prog.Close()
	}
	if e.rows != nil {
		_ = e.rows.Close()
	}
}

// depart is egress_limit of bpf/lib/bandwidth.h with another end: the packet keeps its
// place on the clock as its departure time.
//
//	R6 skb, R7 row, R8 now, R9 cost of the packet in ns, R1 its departure
func depart(rows int, d bpf.DatapathDirection, horizon time.Duration) asm.Instructions {
	var row bpf.DatapathLimit
	rate, clock := int16(unsafe.Offsetof(row.RateBits)), int16(unsafe.Offsetof(row.ClockNs))
	prog := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, skbIfindex, asm.Word),
		asm.StoreMem(asm.R10, -8, asm.R1, asm.Word),
		asm.StoreImm(asm.R10, -4, int64(d), asm.Word),
		asm.LoadMapPtr(asm.R1, rows),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -8),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMem(asm.R1, asm.R7, rate, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "pass"),
		asm.LoadMem(asm.R9, asm.R6, skbWireLen, asm.Word),
		asm.LoadImm(asm.R2, 8*int64(time.Second), asm.DWord),
		asm.Mul.Reg(asm.R9, asm.R2),
		asm.Div.Reg(asm.R9, asm.R1),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.LoadImm(asm.R5, int64(horizon), asm.DWord),
	}
	for i := range retries {
		prog = append(prog, advance(clock, fmt.Sprintf("ahead%d", i))...)
	}
	return append(prog,
		asm.StoreMem(asm.R6, skbTstamp, asm.R1, asm.DWord).WithSymbol("stamp"),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
		asm.Return(),
	)
}

// advance takes the packet's time from the clock, unless another processor was faster.
func advance(clock int16, ahead string) asm.Instructions {
	swap := asm.CmpXchg.Mem(asm.R7, asm.R2, asm.DWord, clock) // with R0, into R0
	swap.Constant = 0xf1                                      // BPF_CMPXCHG, which ebpf 0.22.0 leaves out: an addition
	return asm.Instructions{
		asm.LoadMem(asm.R0, asm.R7, clock, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.JGE.Reg(asm.R1, asm.R8, ahead),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Reg(asm.R2, asm.R1).WithSymbol(ahead),
		asm.Sub.Reg(asm.R2, asm.R8),
		asm.JGT.Reg(asm.R2, asm.R5, "drop"),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Add.Reg(asm.R2, asm.R9),
		swap,
		asm.JEq.Reg(asm.R0, asm.R3, "stamp"),
	}
}
