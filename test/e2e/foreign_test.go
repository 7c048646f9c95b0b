// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// foreign is somebody else's program on a hook: it counts packets and passes them on.
type foreign struct {
	name string
	prog *ebpf.Program
	seen *ebpf.Map
	off  func() error // takes it off its hook
}

func newForeign(t *testing.T, name string) *foreign {
	t.Helper()
	f := &foreign{name: name}
	var err error
	f.seen, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.seen.Close() })
	f.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, f.seen.FD()),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), // TCX_NEXT, TC_ACT_UNSPEC
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatalf("load foreign program: %v", err)
	}
	t.Cleanup(func() { _ = f.prog.Close() })
	return f
}

func (f *foreign) count(t *testing.T) (n uint64) {
	t.Helper()
	if err := f.seen.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (f *foreign) id(t *testing.T) ebpf.ProgramID {
	t.Helper()
	info, err := f.prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

// hook is one direction of a device.
type hook struct {
	node   *netns.Node
	dev    string
	egress bool
}

func (h hook) String() string { return fmt.Sprintf("%s egress=%v", h.dev, h.egress) }

func (h hook) parent() uint32 {
	if h.egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

func (h hook) tcx() ebpf.AttachType {
	if h.egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// clsact adds a foreign filter.
func (h hook) clsact(t *testing.T, name string, priority uint16) *foreign {
	t.Helper()
	f := newForeign(t, fmt.Sprintf("%s at %s", name, h))
	index := devices(t, h.node.NS)[h.dev].Index
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: h.parent(), Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL},
		Fd:          f.prog.FD(), Name: "foreign", DirectAction: true,
	}
	err := h.node.Do(func() error {
		qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
		if err := netlink.QdiscAdd(qdisc); err != nil && err != unix.EEXIST {
			return err
		}
		return netlink.FilterAdd(filter)
	})
	f.off = func() error { return h.node.Do(func() error { return netlink.FilterDel(filter) }) }
	if err != nil {
		t.Fatalf("add filter to %s: %v", h, err)
	}
	return f
}

// link attaches a foreign tcx program ahead of all or behind them.
func (h hook) link(t *testing.T, name string, at link.Anchor) *foreign {
	t.Helper()
	f := newForeign(t, fmt.Sprintf("%s at %s", name, h))
	index := devices(t, h.node.NS)[h.dev].Index
	err := h.node.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: f.prog, Attach: h.tcx(), Anchor: at})
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
			f.off = l.Close
		}
		return err
	})
	if err != nil {
		t.Fatalf("attach to %s: %v", h, err)
	}
	return f
}

// programs are the ids of all that is attached there, by either way.
func (h hook) programs(t *testing.T) (ids []ebpf.ProgramID) {
	t.Helper()
	index := devices(t, h.node.NS)[h.dev].Index
	err := h.node.Do(func() error {
		r, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.tcx()})
		if err == nil {
			for _, p := range r.Programs {
				ids = append(ids, p.ID)
			}
		}
		filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, h.parent())
		if err != nil && err != unix.EINVAL { // no clsact there
			return err
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok {
				ids = append(ids, ebpf.ProgramID(b.Id))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("list programs at %s: %v", h, err)
	}
	return ids
}

// pinned is the id of one of our programs.
func pinned(t *testing.T, n *netns.Node, program string) ebpf.ProgramID {
	t.Helper()
	p, err := ebpf.LoadPinnedProgram(filepath.Join(n.PinPath, "v1", "progs", program), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}
