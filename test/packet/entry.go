// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// entry is a program that puts cb[0] into tc_index, which BPF_PROG_TEST_RUN does not
// take, and goes on in the program under test by a tail call.
type entry struct {
	prog *ebpf.Program
	next *ebpf.Map
}

const entryName = "entry"

func newEntry() (*entry, error) {
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make map of the entry program: %w", err)
	}
	var ctx Context
	cb, tcIndex := int16(unsafe.Offsetof(ctx.Cb)), int16(unsafe.Offsetof(ctx.TcIndex))
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: entryName, Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			withFunc(asm.LoadMem(asm.R2, asm.R1, cb, asm.Word)),
			asm.StoreMem(asm.R1, tcIndex, asm.R2, asm.Word),
			asm.LoadMapPtr(asm.R2, next.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, -2), // no verdict of ours
			asm.Return(),
		},
	})
	if err != nil {
		next.Close()
		return nil, fmt.Errorf("load entry program: %w", err)
	}
	return &entry{prog, next}, nil
}

func (e *entry) into(prog *ebpf.Program) error { return e.next.Put(uint32(0), prog) }

func (e *entry) close() {
	e.prog.Close()
	e.next.Close()
}

// withFunc opens a function that has BTF: without, nothing can be attached to it.
func withFunc(ins asm.Instruction) asm.Instruction {
	ctx := &btf.Pointer{Target: &btf.Struct{Name: "__sk_buff", Size: 192}}
	return btf.WithFuncMetadata(ins.WithSymbol(entryName), &btf.Func{
		Name: entryName, Linkage: btf.GlobalFunc,
		Type: &btf.FuncProto{
			Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed},
			Params: []btf.FuncParam{{Name: "skb", Type: ctx}},
		},
	})
}
