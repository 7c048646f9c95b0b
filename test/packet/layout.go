// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// layout says where the running kernel keeps struct bpf_redirect_info and its members.
type layout struct {
	size                   int
	target, flags, nextHop int
	pointer                asm.Instructions // loads the address into R3
}

func readLayout() (layout, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return layout{}, fmt.Errorf("read kernel BTF: %w", err)
	}
	info, err := kernelStruct(spec, "bpf_redirect_info")
	if err != nil {
		return layout{}, err
	}
	l := layout{size: int(info.Size)}
	for name, to := range map[string]*int{"tgt_index": &l.target, "flags": &l.flags, "nh": &l.nextHop} {
		offset, ok := member(info, name)
		if !ok {
			return l, fmt.Errorf("find member %s of kernel struct %s", name, info.Name)
		}
		*to = offset
	}
	l.pointer, err = infoPointer(spec)
	return l, err
}

// infoPointer is for the bpf_redirect_info of this task, before 6.11 of this processor.
func infoPointer(spec *btf.Spec) (asm.Instructions, error) {
	task, err := kernelStruct(spec, "task_struct")
	if err != nil {
		return nil, err
	}
	if offset, ok := member(task, "bpf_net_context"); ok { // which begins with it
		return asm.Instructions{
			asm.FnGetCurrentTask.Call(),
			asm.Mov.Reg(asm.R3, asm.R0),
			asm.Add.Imm(asm.R3, int32(offset)),
			asm.Mov.Reg(asm.R1, asm.R10),
			asm.Add.Imm(asm.R1, -8),
			asm.Mov.Imm(asm.R2, 8),
			asm.FnProbeReadKernel.Call(),
			asm.LoadMem(asm.R3, asm.R10, -8, asm.DWord),
		}, nil
	}
	var v *btf.Var
	if err := spec.TypeByName("bpf_redirect_info", &v); err != nil {
		return nil, fmt.Errorf("find kernel variable bpf_redirect_info: %w", err)
	}
	id, err := spec.TypeID(v)
	if err != nil {
		return nil, fmt.Errorf("find kernel variable bpf_redirect_info: %w", err)
	}
	return asm.Instructions{
		{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R1, Src: pseudoBTFID, Constant: int64(id)},
		asm.FnThisCpuPtr.Call(),
		asm.Mov.Reg(asm.R3, asm.R0),
	}, nil
}

// pseudoBTFID is BPF_PSEUDO_BTF_ID: the constant is the BTF id of a kernel variable.
const pseudoBTFID = asm.R3

func kernelStruct(spec *btf.Spec, name string) (*btf.Struct, error) {
	var s *btf.Struct
	if err := spec.TypeByName(name, &s); err != nil {
		return nil, fmt.Errorf("find kernel struct %s: %w", name, err)
	}
	return s, nil
}

// member is the offset of a named member in bytes.
func member(s *btf.Struct, name string) (int, bool) {
	for _, m := range s.Members {
		if m.Name == name {
			return int(m.Offset.Bytes()), true
		}
	}
	return 0, false
}
