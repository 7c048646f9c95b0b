// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

// floor is what the kernel takes on culvert's ways when a program does nothing but redirect:
// no lookup, no check, no translation. No datapath of this kind can be faster.
//
//	pod1 -- redirect_peer --> pod2
//	outside -- redirect_peer --> pod3 -- redirect_neigh --> outside
//
// What the programs do not leave to the kernel, neighbours, is written down before.
func (s *stage) floor() error {
	f := floorBed{stage: s, spaces: map[string]*netns.NS{}}
	for _, name := range []string{"node", "outside", "pod1", "pod2", "pod3"} {
		ns, err := s.client("floor's " + name)
		if err != nil {
			return err
		}
		f.spaces[name] = ns
	}
	if err := f.wire(); err != nil {
		return err
	}
	progs := map[string]*ebpf.Program{}
	for _, p := range []struct {
		name, from, to string
		helper         asm.BuiltinFunc
	}{
		{"pod1", "pod1", "pod2", asm.FnRedirectPeer},
		{"pod2", "pod2", "pod1", asm.FnRedirectPeer},
		{"from_uplink", "outside", "pod3", asm.FnRedirectPeer},
		{"from_pod", "pod3", "outside", asm.FnRedirectNeigh},
	} {
		prog, err := f.redirect(p.from, p.to, p.helper)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		progs[p.name] = prog
	}
	within, err := s.serve(f.spaces["pod2"])
	if err != nil {
		return err
	}
	in, err := s.serve(f.spaces["pod3"])
	if err != nil {
		return err
	}
	s.add(path{kinds: everything, client: f.spaces["pod1"], server: within, programs: ofThese(map[string]*ebpf.Program{"from_pod": progs["pod1"]})},
		floor, netip.MustParseAddr("10.30.0.2"), netip.MustParseAddr("fd00:30::2"), port)
	s.add(path{kinds: everything, client: f.spaces["outside"], server: in, programs: ofThese(progs), out: true},
		floorIn, netip.MustParseAddr("10.30.0.3"), netip.MustParseAddr("fd00:30::3"), port)
	return nil
}

// ofThese are programs that this process holds.
func ofThese(progs map[string]*ebpf.Program) func() (map[string]ran, error) {
	return func() (map[string]ran, error) {
		runs := map[string]ran{}
		for name, prog := range progs {
			r, err := statsOf(prog)
			if err != nil {
				return nil, err
			}
			runs[name] = r
		}
		return runs, nil
	}
}

// floorBed is a node whose devices have the names of who is at their other end, where the
// device is eth0.
type floorBed struct {
	*stage
	spaces map[string]*netns.NS
}

func (f floorBed) wire() error {
	n := f.spaces["node"]
	for i, name := range []string{"outside", "pod1", "pod2", "pod3"} {
		ns := f.spaces[name]
		if err := wire(n, name, ns, "eth0"); err != nil {
			return err
		}
		subnet, host := 30, i
		if name == "outside" {
			subnet, host = 31, 1
		}
		if err := address(ns, "eth0", subnet, host); err != nil {
			return err
		}
	}
	if err := address(n, "outside", 31, 2); err != nil {
		return err
	}
	for _, l := range []struct {
		of, other string
		lines     []string
	}{
		{"pod1", "10.30.0.2 fd00:30::2", nil},
		{"pod2", "10.30.0.1 fd00:30::1", nil},
		{"pod3", "10.30.0.254 fd00:30::fe", []string{"route add default via 10.30.0.254", "route add default via fd00:30::fe"}},
		{"outside", "10.31.0.2 fd00:31::2", []string{"route add 10.30.0.0/24 via 10.31.0.2", "route add fd00:30::/64 via fd00:31::2"}},
	} {
		if err := f.neighbours(l.of, l.other, l.lines); err != nil {
			return err
		}
	}
	// Whom redirect_neigh asks for.
	mac, err := hardware(f.spaces["outside"], "eth0")
	if err != nil {
		return err
	}
	return node.IP(n, "neigh replace 10.31.0.1 lladdr "+mac+" dev outside nud permanent",
		"neigh replace fd00:31::1 lladdr "+mac+" dev outside nud permanent")
}

// neighbours has the node's end of a wire stand for the addresses.
func (f floorBed) neighbours(of, addresses string, more []string) error {
	mac, err := hardware(f.spaces["node"], of)
	if err != nil {
		return err
	}
	var four, six string
	if _, err := fmt.Sscan(addresses, &four, &six); err != nil {
		return err
	}
	lines := []string{"neigh replace " + four + " lladdr " + mac + " dev eth0 nud permanent", "neigh replace " + six + " lladdr " + mac + " dev eth0 nud permanent"}
	return node.IP(f.spaces[of], append(lines, more...)...)
}

func hardware(ns *netns.NS, dev string) (string, error) {
	var mac string
	err := ns.Do(func() error {
		i, err := net.InterfaceByName(dev)
		if err == nil {
			mac = i.HardwareAddr.String()
		}
		return err
	})
	return mac, err
}

// redirect attaches a program to the node's end of a wire: whatever comes from there goes to
// another one.
func (f floorBed) redirect(from, to string, helper asm.BuiltinFunc) (*ebpf.Program, error) {
	var prog *ebpf.Program
	err := f.spaces["node"].Do(func() error {
		in, err := net.InterfaceByName(from)
		if err != nil {
			return err
		}
		out, err := net.InterfaceByName(to)
		if err != nil {
			return err
		}
		prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "floor", Type: ebpf.SchedCLS, License: "GPL", Instructions: redirection(out.Index, helper)})
		if err != nil {
			return fmt.Errorf("load: %w", err)
		}
		f.closers = append(f.closers, prog.Close)
		l, err := link.AttachTCX(link.TCXOptions{Interface: in.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		f.closers = append(f.closers, l.Close)
		return nil
	})
	return prog, err
}

func redirection(to int, helper asm.BuiltinFunc) asm.Instructions {
	ins := asm.Instructions{asm.Mov.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, 0)}
	if helper == asm.FnRedirectNeigh { // its parameters, their length, flags
		ins = append(ins, asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0))
	}
	return append(ins, helper.Call(), asm.Return())
}
