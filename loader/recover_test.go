// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// A filter's name tells which pinPath it belongs to, and fits into what the kernel takes.
func TestFilterName(t *testing.T) {
	long := "/sys/fs/bpf/" + strings.Repeat("x", 300)
	for _, path := range []string{DefaultPinPath, "/sys/fs/bpf/culvert-b", long} {
		for _, h := range allHooks() {
			name := filterName(h, path)
			if len(name) > 255 {
				t.Errorf("%d bytes: %s", len(name), name)
			}
			for _, other := range []string{DefaultPinPath, "/sys/fs/bpf/culvert-b", long} {
				got, ok := hookNamed(Filter{Egress: h.egress, Name: name}, other)
				if ok != (other == path) || ok && got != h {
					t.Errorf("%s under %s: %v, %v", name, other, got, ok)
				}
			}
		}
	}
	if _, ok := hookNamed(Filter{Name: "foreign"}, DefaultPinPath); ok {
		t.Error("a foreign filter is ours")
	}
}

// Tables whose pins were deleted come back with their rows from a program that is pinned
// still, each of which holds all tables; a Datapath that was made anew says so.
func TestPrivilegedRecoverFromPrograms(t *testing.T) {
	opts := options(t)
	d := ensure(t, opts)
	if !d.Fresh() {
		t.Error("the first one is not fresh")
	}
	limit := maps.Limit{Ifindex: 3, Direction: maps.Egress, Rate: 1, Burst: 2}
	iface := maps.Iface{Ifindex: 3, Generation: 9, Owner: maps.Owner{Network: "n", Container: "c", IfName: "eth0"}}
	if err := d.Maps.Limits.Put(limit); err != nil {
		t.Fatal(err)
	}
	if err := d.Maps.Ifaces.Put(iface); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs()[1:] { // one program is enough
		if err := os.Remove(filepath.Join(d.dirs.progs, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(d.dirs.maps); err != nil {
		t.Fatal(err)
	}
	d.Close()
	var did []string
	opts.Did = func(what string) { did = append(did, what) }
	d = ensure(t, opts)
	if d.Fresh() || len(did) != 2 || !strings.Contains(did[0], "tables again") {
		t.Errorf("fresh %v, did %q", d.Fresh(), did)
	}
	if got, err := d.Maps.Limits.Get(3, maps.Egress); err != nil || got != limit {
		t.Errorf("limit: %+v, %v", got, err)
	}
	if got, err := d.Maps.Ifaces.Get(3); err != nil || got.Owner != iface.Owner {
		t.Errorf("iface: %+v, %v", got, err)
	}
	if config, err := d.Maps.Config.Get(); err != nil || config.Build != bpf.Build() {
		t.Errorf("config: %+v, %v", config, err)
	}
}
