// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestPrivilegedEnsure(t *testing.T) {
	opts := options(t)
	if _, err := Open(opts); !errors.Is(err, ErrNotLoaded) || !strings.Contains(err.Error(), opts.PinPath) {
		t.Errorf("open before a load: %v", err)
	}
	d := ensure(t, opts)
	config, err := d.Maps.Config.Get()
	if err != nil || config.Build != bpf.Build() || config.Schema != Schema {
		t.Errorf("config %+v, %v", config, err)
	}
	before := pinned(t, d)
	ensure(t, opts)
	if after := pinned(t, d); !same(before, after) {
		t.Errorf("a second run loaded again: %v, then %v", before, after)
	}
	if _, err := Open(opts); err != nil {
		t.Errorf("open: %v", err)
	}
}

// S4: who is not root opens no pin, whatever the umask and the directory above say.
func TestPrivilegedS4PinDirectory(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	opts := options(t)
	if err := os.Chmod(filepath.Dir(opts.PinPath), 0o755); err != nil {
		t.Fatal(err)
	}
	d := ensure(t, opts)
	for _, dir := range []string{opts.PinPath, filepath.Dir(d.dirs.maps), d.dirs.maps, d.dirs.progs, d.dirs.links} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, fi, err)
		}
	}
}

func TestPrivilegedEnsureInParallel(t *testing.T) {
	opts := options(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			d, err := Ensure(opts)
			if err != nil {
				t.Error(err)
				return
			}
			d.Close()
		})
	}
	wg.Wait()
	d := ensure(t, opts)
	entries, err := os.ReadDir(d.dirs.progs)
	if err != nil || len(entries) != len(programs()) {
		t.Errorf("pinned programs: %v, %v", entries, err)
	}
}

// Killed anywhere in a load, the next run does it again.
func TestPrivilegedEnsureCompletes(t *testing.T) {
	opts := options(t)
	d := ensure(t, opts)
	for name, spoil := range map[string]func(*Datapath) error{
		"another build": func(d *Datapath) error {
			return d.Maps.Config.Put(maps.NodeConfig{Build: 1, Schema: Schema})
		},
		"before the build": func(d *Datapath) error { return d.Maps.Config.Put(maps.NodeConfig{}) },
		"no program": func(d *Datapath) error {
			return os.Remove(filepath.Join(d.dirs.progs, bpf.DatapathProgToUplink))
		},
		"no map": func(d *Datapath) error {
			return os.Remove(filepath.Join(d.dirs.maps, bpf.DatapathMapFragments))
		},
		"between pin and rename": func(d *Datapath) error {
			progs := d.dirs.progs
			return os.Rename(filepath.Join(progs, bpf.DatapathProgToPod), filepath.Join(progs, bpf.DatapathProgToPod+"_next"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := pinned(t, d)
			if err := spoil(d); err != nil {
				t.Fatal(err)
			}
			d := ensure(t, opts)
			if !d.current() {
				t.Error("not current")
			}
			if after := pinned(t, d); len(after) != len(programs()) || after[bpf.DatapathProgFromPod] == before[bpf.DatapathProgFromPod] {
				t.Errorf("programs %v, before %v", after, before)
			}
		})
	}
}

func TestPrivilegedEnsureKeepsRows(t *testing.T) {
	opts := options(t)
	d := ensure(t, opts)
	limit := maps.Limit{Ifindex: 3, Direction: maps.Egress, Rate: 1, Burst: 2}
	config := maps.NodeConfig{
		Build: 1, Features: maps.FeatureSharedPorts, Ports: []maps.PortRange{{First: 61000, Last: 65535}},
		Uplinks: []maps.UplinkAddr{{Ifindex: 2, Addr4: netip.MustParseAddr("192.0.2.1")}},
	}
	if err := errors.Join(d.Maps.Limits.Put(limit), d.Maps.Config.Put(config)); err != nil {
		t.Fatal(err)
	}
	set := ensure(t, opts).Maps
	if got, err := set.Limits.Get(3, maps.Egress); err != nil || got != limit {
		t.Errorf("row after an upgrade: %+v, %v", got, err)
	}
	got, err := set.Config.Get()
	if err != nil || got.Build != bpf.Build() || got.Features&maps.FeatureSharedPorts == 0 || got.Features == maps.FeatureSharedPorts ||
		!reflect.DeepEqual(got.Ports, config.Ports) || !reflect.DeepEqual(got.Uplinks, config.Uplinks) {
		t.Errorf("config after an upgrade: %+v, %v", got, err)
	}
}

func TestPrivilegedEnsureRefusesOtherLayout(t *testing.T) {
	opts := options(t)
	if err := prepare(opts); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(dirsOf(opts.PinPath).maps, bpf.DatapathMapPods)); err != nil {
		t.Fatal(err)
	}
	_, err = Ensure(opts)
	if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), opts.PinPath) {
		t.Errorf("error %v", err)
	}
}

// In a mount namespace without bpffs: mounted under /sys/fs/bpf, refused elsewhere.
func TestPrivilegedEnsureMountsBPFFS(t *testing.T) {
	netns.RequireRoot(t)
	elsewhere := t.TempDir()
	done := make(chan error)
	go func() { done <- inMountNS(elsewhere) }() // its thread ends with it
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNotOnBPFFS(t *testing.T) {
	for _, pinPath := range []string{filepath.Join(t.TempDir(), "pins"), "culvert"} {
		_, err := Ensure(Options{PinPath: pinPath})
		if !errors.Is(err, ErrNotBPFFS) || !strings.Contains(err.Error(), pinPath) || !strings.Contains(err.Error(), "pinPath") {
			t.Errorf("%s: %v", pinPath, err)
		}
		if _, err := os.Stat(pinPath); err == nil {
			t.Errorf("%s was made", pinPath)
		}
		if s := Inspect(Options{PinPath: pinPath}); s.Loaded || len(s.Faults) != 1 {
			t.Errorf("%s: status %+v", pinPath, s)
		}
	}
}

func TestPrivilegedInspect(t *testing.T) {
	opts := options(t)
	if s := Inspect(opts); s.Loaded || len(s.Faults) != 0 || s.Kernel == "" {
		t.Errorf("before a load: %+v", s)
	}
	d := ensure(t, opts)
	s := Inspect(opts)
	if !s.Loaded || !s.Current || s.Build != bpf.Build() || len(s.Uplinks) != 0 {
		t.Errorf("after it: %+v", s)
	}
	if err := d.Maps.Config.Put(maps.NodeConfig{Build: 5}); err != nil {
		t.Fatal(err)
	}
	if s := Inspect(opts); len(s.Warnings) != 1 || !errors.Is(s.Warnings[0], ErrBuild) || s.Warnings[0].Remedy == "" {
		t.Errorf("another build: %+v", s)
	}
	if err := d.Maps.Config.Put(maps.NodeConfig{Build: 5, Features: maps.FeatureSharedPorts}); err != nil {
		t.Fatal(err)
	}
	if s := Inspect(opts); len(s.Warnings) != 2 || !errors.Is(s.Warnings[1], ErrFewPorts) || s.Warnings[1].Remedy == "" {
		t.Errorf("with shared ports: %+v", s)
	}
	opts.Attach = AttachTCX
	want := 2
	if conntrackAppeared() { // the next ADD mends that
		want = 1
	}
	if s := Inspect(opts); s.Current || len(s.Faults) != want {
		t.Errorf("without features: want %d faults: %+v", want, s)
	}
}

func inMountNS(elsewhere string) error {
	runtime.LockOSThread() // never unlocked: nobody else gets it
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", bpffsRoot, "tmpfs", 0, ""),
	} {
		if err != nil {
			return err
		}
	}
	opts := Options{PinPath: bpffsRoot + "/culvert", Netlink: &FakeNetlink{}}
	if s := Inspect(opts); len(s.Faults) != 1 || !errors.Is(s.Faults[0], ErrNotBPFFS) {
		return errors.New("status without bpffs has no fault")
	}
	d, err := Ensure(opts)
	if err != nil {
		return err
	}
	defer d.Close()
	if on, err := onBPFFS(bpffsRoot); err != nil || !on {
		return errors.Join(errors.New("no bpffs mounted"), err)
	}
	if _, err := Ensure(Options{PinPath: elsewhere}); !errors.Is(err, ErrNotBPFFS) {
		return errors.Join(errors.New("pins elsewhere"), err)
	}
	return nil
}

func options(t testing.TB) Options {
	t.Helper()
	return Options{PinPath: filepath.Join(netns.PinPath(t), "culvert"), Netlink: &FakeNetlink{}}.withDefaults()
}

func ensure(t testing.TB, opts Options) *Datapath {
	t.Helper()
	d, err := Ensure(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// pinned gives the ids of the pinned programs.
func pinned(t testing.TB, d *Datapath) map[string]ebpf.ProgramID {
	t.Helper()
	ids := map[string]ebpf.ProgramID{}
	entries, err := os.ReadDir(d.dirs.progs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ids[e.Name()] = programID(t, d, e.Name())
	}
	return ids
}

func programID(t testing.TB, d *Datapath, name string) ebpf.ProgramID {
	t.Helper()
	prog, err := ebpf.LoadPinnedProgram(filepath.Join(d.dirs.progs, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

func same(a, b map[string]ebpf.ProgramID) bool {
	for name, id := range a {
		if b[name] != id {
			return false
		}
	}
	return len(a) == len(b)
}

// BenchmarkPrivilegedEnsure is the part of every ADD.
func BenchmarkPrivilegedEnsure(b *testing.B) {
	opts := options(b)
	ensure(b, opts)
	for b.Loop() {
		d, err := Ensure(opts)
		if err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
}
