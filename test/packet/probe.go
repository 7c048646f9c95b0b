// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

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

// Kernel flags of struct bpf_redirect_info; the two internal ones moved in 6.14.
const (
	flagIngress = 1 << 0
	flagNeigh   = 1<<1 | 1<<16
	flagPeer    = 1<<2 | 1<<17
)

// probe sees what a program leaves behind and BPF_PROG_TEST_RUN does not tell: it is an
// fexit program that copies the whole sk_buff and where the redirect would go.
type probe struct {
	seen   *ebpf.Map
	layout layout
	close  func()
}

// newProbe watches the programs, all named in BTF as they are in progs, and entry.
func newProbe(entry *ebpf.Program, progs map[string]*ebpf.Program) (*probe, error) {
	var undo []func() error
	p := &probe{close: func() {
		for _, f := range undo {
			_ = f()
		}
	}}
	var err error
	if p.layout, err = readLayout(); err != nil {
		return nil, err
	}
	size := uint32(p.layout.skb + p.layout.info)
	p.seen, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make map of the probe: %w", err)
	}
	undo = append(undo, p.seen.Close)
	for name, prog := range progs {
		if err = p.attach(name, prog, &undo); err != nil {
			break
		}
	}
	if err == nil {
		err = p.attach(entryName, entry, &undo)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *probe) attach(name string, target *ebpf.Program, undo *[]func() error) error {
	copySeen := asm.Instructions{
		asm.LoadMem(asm.R8, asm.R1, 0, asm.DWord), // the first argument: skb
		asm.LoadMapValue(asm.R7, p.seen.FD(), 0),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Mov.Imm(asm.R2, int32(p.layout.skb)),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.FnProbeReadKernel.Call(),
	}
	copySeen = append(copySeen, p.layout.infoPointer...) // into R3
	copySeen = append(copySeen,
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, int32(p.layout.skb)),
		asm.Mov.Imm(asm.R2, int32(p.layout.info)),
		asm.FnProbeReadKernel.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: name, AttachTarget: target,
		License: "Dual BSD/GPL", Instructions: copySeen,
	})
	if err != nil {
		return fmt.Errorf("load probe of %s: %w", name, err)
	}
	*undo = append(*undo, prog.Close)
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return fmt.Errorf("attach probe to %s: %w", name, err)
	}
	*undo = append(*undo, l.Close)
	return nil
}

// read adds to out what the probe saw of the last run.
func (p *probe) read(out *Out) error {
	b, err := p.seen.LookupBytes(uint32(0))
	if err != nil {
		return fmt.Errorf("read probe: %w", err)
	}
	l := &p.layout
	out.TcIndex = binary.NativeEndian.Uint16(b[l.tcIndex:])
	out.PktType = b[l.pktType] >> l.pktTypeShift & 7
	if out.Verdict != Redirect {
		return nil
	}
	info := b[l.skb:]
	flags := binary.NativeEndian.Uint32(info[l.flags:])
	out.Redirect.Ifindex = int(binary.NativeEndian.Uint32(info[l.target:]))
	switch {
	case flags&flagPeer != 0:
		out.Redirect.Kind = Peer
	case flags&flagNeigh != 0:
		out.Redirect.Kind = Neighbour
		out.Redirect.NextHop = nextHop(info[l.nextHop:])
	case flags&flagIngress != 0:
		out.Redirect.Kind = Ingress
	default:
		out.Redirect.Kind = Egress
	}
	return nil
}

// nextHop decodes struct bpf_nh_params: family and address.
func nextHop(b []byte) netip.Addr {
	if binary.NativeEndian.Uint32(b) == 2 {
		return netip.AddrFrom4([4]byte(b[4:]))
	}
	return netip.AddrFrom16([16]byte(b[4:]))
}

// typeOf is TypeByName for a struct.
func typeOf(spec *btf.Spec, name string) (*btf.Struct, error) {
	var s *btf.Struct
	if err := spec.TypeByName(name, &s); err != nil {
		return nil, fmt.Errorf("find kernel struct %s: %w", name, err)
	}
	return s, nil
}
