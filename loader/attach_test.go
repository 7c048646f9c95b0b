// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// node is a namespace with a device, and a datapath for it.
type node struct {
	*netns.NS
	d    *Datapath
	fake *FakeNetlink
	dev  int // of uplink0
}

func newNode(t *testing.T, mode AttachMode, needTCX bool) *node {
	t.Helper()
	opts := Options{PinPath: netns.NodePins(t), Netlink: &FakeNetlink{}, Attach: mode}.withDefaults()
	n := &node{NS: netns.New(t, "node"), d: ensure(t, opts), fake: opts.Netlink.(*FakeNetlink)}
	config, err := n.d.Maps.Config.Get()
	if err != nil {
		t.Fatal(err)
	}
	if needTCX && config.Features&maps.FeatureTCX == 0 {
		t.Skip("kernel without tcx")
	}
	n.dev = n.device(t, "uplink0")
	return n
}

func (n *node) device(t *testing.T, name string) (ifindex int) {
	t.Helper()
	n.IP(t, "link add "+name+" type veth peer name "+name+"p")
	n.do(t, func() error {
		i, err := net.InterfaceByName(name)
		if err == nil {
			ifindex = i.Index
		}
		return err
	})
	return ifindex
}

func (n *node) do(t *testing.T, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatal(err)
	}
}

// eachWay runs a test by clsact, which every kernel has, and by tcx where the kernel has it.
func eachWay(t *testing.T, test func(t *testing.T, n *node)) {
	t.Run("clsact", func(t *testing.T) { test(t, newNode(t, AttachClsact, false)) })
	t.Run("tcx", func(t *testing.T) { test(t, newNode(t, AttachTCX, true)) })
}

// on counts what is attached to a hook, by whatever way.
func (n *node) on(t *testing.T, ifindex int, egress bool) int {
	t.Helper()
	count := 0
	if n.fake.Filters[FakeHook{ifindex, egress}] != "" {
		count++
	}
	if n.d.opts.Attach == AttachClsact { // the kernel may not even know what to ask for
		return count
	}
	at := ebpf.AttachTCXIngress
	if egress {
		at = ebpf.AttachTCXEgress
	}
	return count + len(n.attached(t, ifindex, at))
}

// attached gives the programs at a tcx hook, in the order in which they run.
func (n *node) attached(t *testing.T, ifindex int, at ebpf.AttachType) (ids []ebpf.ProgramID) {
	t.Helper()
	n.do(t, func() error {
		result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
		if err == nil {
			for _, p := range result.Programs {
				ids = append(ids, p.ID)
			}
		}
		return err
	})
	return ids
}

func TestPrivilegedUplinkByTCX(t *testing.T) {
	n := newNode(t, AttachAuto, true)
	var foreign ebpf.ProgramID
	n.do(t, func() error { return foreignTCX(t, n.dev, &foreign) })
	for range 3 {
		n.do(t, func() error { return n.d.AttachUplink(n.dev) })
	}
	in := []ebpf.ProgramID{programID(t, n.d, bpf.DatapathProgFromUplink), foreign}
	if got := n.attached(t, n.dev, ebpf.AttachTCXIngress); !slices.Equal(got, in) {
		t.Errorf("ingress %v, want %v: ours, once, ahead of others", got, in)
	}
	out := []ebpf.ProgramID{programID(t, n.d, bpf.DatapathProgToUplink)}
	if got := n.attached(t, n.dev, ebpf.AttachTCXEgress); !slices.Equal(got, out) {
		t.Errorf("egress %v, want %v", got, out)
	}
	if got, err := n.d.Uplinks(); err != nil || !slices.Equal(got, []int{n.dev}) {
		t.Errorf("uplinks %v, %v", got, err)
	}
	if err := n.d.CheckUplink(n.dev); err != nil {
		t.Error(err)
	}
	if n.fake.Attached != 0 {
		t.Error("clsact was used")
	}
}

// What is attached to a device that is gone is forgotten by the next ADD.
func TestPrivilegedUplinkVanishes(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node) {
		other := n.device(t, "uplink1")
		n.do(t, func() error { return errors.Join(n.d.AttachUplink(n.dev), n.d.AttachUplink(other)) })
		n.IP(t, "link del uplink0")
		n.do(t, func() error {
			got, err := n.d.Uplinks()
			if err != nil || !slices.Equal(got, []int{other}) {
				t.Errorf("uplinks %v, %v", got, err)
			}
			return nil
		})
		third := n.device(t, "uplink2")
		n.do(t, func() error { return n.d.AttachUplink(third) })
		if entries, err := os.ReadDir(n.d.dirs.links); err != nil || len(entries) != 4 {
			t.Errorf("pins of a device that is gone stay: %v, %v", entries, err)
		}
		n.IP(t, "link del uplink1", "link del uplink2")
		n.do(t, func() error { return errors.Join(n.d.Sweep(), n.d.Sweep()) })
		if entries, err := os.ReadDir(n.d.dirs.links); err != nil || len(entries) != 0 {
			t.Errorf("pins stay: %v, %v", entries, err)
		}
	})
}

func TestPrivilegedUplinkByClsact(t *testing.T) {
	n := newNode(t, AttachClsact, false)
	n.do(t, func() error { return errors.Join(n.d.AttachUplink(n.dev), n.d.AttachUplink(n.dev)) })
	if n.fake.Attached != 2 || n.fake.Filters[FakeHook{n.dev, true}] != "culvert_to_uplink@"+n.d.opts.PinPath {
		t.Errorf("%d calls, filters %v", n.fake.Attached, n.fake.Filters)
	}
	n.do(t, func() error {
		if got, err := n.d.Uplinks(); err != nil || !slices.Equal(got, []int{n.dev}) {
			t.Errorf("uplinks %v, %v", got, err)
		}
		return nil
	})
	n.IP(t, "link del uplink0")
	n.do(t, func() error {
		if got, err := n.d.Uplinks(); err != nil || len(got) != 0 {
			t.Errorf("uplinks %v, %v", got, err)
		}
		return n.d.Sweep()
	})
	if entries, err := os.ReadDir(n.d.dirs.links); err != nil || len(entries) != 0 {
		t.Errorf("marks stay: %v, %v", entries, err)
	}
}

// One of ours a hook, whatever the mode was before.
func TestPrivilegedUplinkModeChanges(t *testing.T) {
	n := newNode(t, AttachAuto, true)
	for _, step := range []struct {
		mode       AttachMode
		links, fil int
	}{{AttachAuto, 1, 0}, {AttachClsact, 0, 2}, {AttachTCX, 1, 0}, {AttachClsact, 0, 2}} {
		n.d.opts.Attach = step.mode
		n.do(t, func() error { return n.d.AttachUplink(n.dev) })
		if got := n.attached(t, n.dev, ebpf.AttachTCXIngress); len(got) != step.links || len(n.fake.Filters) != step.fil {
			t.Errorf("%s: %d links, filters %v", step.mode, len(got), n.fake.Filters)
		}
	}
}

func TestPrivilegedPodHooks(t *testing.T) {
	n := newNode(t, AttachAuto, false)
	if err := n.d.CheckPod(n.dev); err == nil || !strings.Contains(err.Error(), "from_pod") {
		t.Errorf("check before: %v", err)
	}
	n.do(t, func() error { return errors.Join(n.d.AttachPod(n.dev), n.d.AttachPod(n.dev), n.d.CheckPod(n.dev)) })
	want := map[FakeHook]string{{n.dev, false}: "culvert_from_pod@" + n.d.opts.PinPath, {n.dev, true}: "culvert_to_pod@" + n.d.opts.PinPath}
	if len(n.fake.Filters) != 2 || n.fake.Filters[FakeHook{n.dev, true}] != want[FakeHook{n.dev, true}] {
		t.Errorf("filters %v, want %v", n.fake.Filters, want)
	}
	if err := errors.Join(n.d.DetachPod(n.dev), n.d.DetachPod(n.dev)); err != nil {
		t.Error(err)
	}
	n.fake.Gone = map[int]bool{n.dev: true}
	if err := n.d.AttachPod(n.dev); !gone(err) {
		t.Errorf("attach to a device that is gone: %v", err)
	}
}

func TestPrivilegedPodHooksByTCX(t *testing.T) {
	n := newNode(t, AttachTCX, true)
	n.do(t, func() error { return errors.Join(n.d.AttachPod(n.dev), n.d.CheckPod(n.dev)) })
	if got := n.attached(t, n.dev, ebpf.AttachTCXEgress); len(got) != 1 {
		t.Errorf("egress %v", got)
	}
	n.IP(t, "link del uplink0")
	if err := n.d.DetachPod(n.dev); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(n.d.dirs.links); err != nil || len(entries) != 0 {
		t.Errorf("pins stay: %v, %v", entries, err)
	}
}

func TestPrivilegedTCXIsMissing(t *testing.T) {
	n := newNode(t, AttachTCX, false)
	config, err := n.d.Maps.Config.Get()
	if err != nil {
		t.Fatal(err)
	}
	config.Features = 0
	if err := n.d.Maps.Config.Put(config); err != nil {
		t.Fatal(err)
	}
	err = n.Do(func() error { return n.d.AttachUplink(n.dev) })
	if !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "attach") {
		t.Errorf("error %v", err)
	}
	n.d.opts.Attach = AttachAuto
	n.do(t, func() error { return n.d.AttachUplink(n.dev) })
	if len(n.fake.Filters) != 2 {
		t.Errorf("filters %v", n.fake.Filters)
	}
}

// foreignTCX is somebody else's program, there before ours.
func foreignTCX(t *testing.T, ifindex int, id *ebpf.ProgramID) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return err
	}
	*id, _ = info.ID()
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return err
}
