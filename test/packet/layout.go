// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// layout says where the running kernel keeps what the probe reads, all in bytes.
type layout struct {
	skb, info     int // sizes of struct sk_buff and struct bpf_redirect_info
	tcIndex       int // in the sk_buff
	pktType       int
	pktTypeShift  int // bits
	target, flags int // in the bpf_redirect_info
	nextHop       int
	infoPointer   asm.Instructions // loads its address into R3
}

func readLayout() (layout, error) {
	var l layout
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return l, fmt.Errorf("read kernel BTF: %w", err)
	}
	skb, err := typeOf(spec, "sk_buff")
	if err != nil {
		return l, err
	}
	info, err := typeOf(spec, "bpf_redirect_info")
	if err != nil {
		return l, err
	}
	l.skb, l.info = (int(skb.Size)+7)&^7, int(info.Size)
	var shift int
	for _, f := range []struct {
		in   *btf.Struct
		name string
		to   *int
	}{{skb, "tc_index", &l.tcIndex}, {skb, "pkt_type", &l.pktType},
		{info, "tgt_index", &l.target}, {info, "flags", &l.flags}, {info, "nh", &l.nextHop}} {
		bits, ok := member(f.in.Members, f.name)
		if !ok {
			return l, fmt.Errorf("find member %s of kernel struct %s", f.name, f.in.Name)
		}
		*f.to = bits / 8
		if f.name == "pkt_type" {
			shift = bits % 8
		}
	}
	l.pktTypeShift = shift
	l.infoPointer, err = infoPointer(spec)
	return l, err
}

// infoPointer loads the address of this processor's, since 6.11 this task's,
// bpf_redirect_info.
func infoPointer(spec *btf.Spec) (asm.Instructions, error) {
	task, err := typeOf(spec, "task_struct")
	if err != nil {
		return nil, err
	}
	if bits, ok := member(task.Members, "bpf_net_context"); ok { // starts with the bpf_redirect_info
		return asm.Instructions{
			asm.FnGetCurrentTask.Call(),
			asm.Mov.Reg(asm.R3, asm.R0),
			asm.Add.Imm(asm.R3, int32(bits/8)),
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
		return nil, err
	}
	return asm.Instructions{
		{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R1, Src: pseudoBTFID, Constant: int64(id)},
		asm.FnThisCpuPtr.Call(),
		asm.Mov.Reg(asm.R3, asm.R0),
	}, nil
}

// pseudoBTFID is BPF_PSEUDO_BTF_ID: the constant is the BTF id of a kernel variable.
const pseudoBTFID = asm.R3

// member finds a member by name, in anonymous structs and unions too; its offset in bits.
func member(members []btf.Member, name string) (int, bool) {
	for _, m := range members {
		if m.Name == name {
			return int(m.Offset), true
		}
		if m.Name != "" {
			continue
		}
		if bits, ok := member(inner(m.Type), name); ok {
			return int(m.Offset) + bits, true
		}
	}
	return 0, false
}

func inner(t btf.Type) []btf.Member {
	switch t := t.(type) {
	case *btf.Struct:
		return t.Members
	case *btf.Union:
		return t.Members
	}
	return nil
}
