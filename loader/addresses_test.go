// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

func lease(last byte) maps.Lease {
	return maps.Lease{
		Addr: netip.AddrFrom4([4]byte{10, 0, 0, last}), State: maps.AddressHeld, Since: 5,
		Owner: maps.Owner{Network: "n", Container: "c", IfName: "eth0"},
	}
}

// Another main plugin's addresses need no datapath; one that is loaded later takes the table
// as it is.
func TestPrivilegedAddressesFirst(t *testing.T) {
	opts := options(t)
	if _, err := OpenAddresses(opts); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("open before: %v", err)
	}
	a, err := EnsureAddresses(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Claim(lease(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(opts); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("a datapath is loaded: %v", err)
	}
	if s := Inspect(opts); s.Loaded || len(s.Faults) != 0 {
		t.Errorf("status: %+v", s)
	}
	d := ensure(t, opts)
	if !d.Fresh() {
		t.Error("the tables of pods are not told to be new")
	}
	again, err := OpenAddresses(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if l, err := again.Get("n", lease(2).Addr); err != nil || l != lease(2) {
		t.Errorf("after the load: %+v, %v", l, err)
	}
}

// L7: a pin that is lost is found again by the programs, with every row, by whoever comes.
func TestPrivilegedAddressesPinLost(t *testing.T) {
	for name, next := range map[string]func(*testing.T, Options){
		"culvert": func(t *testing.T, opts Options) { ensure(t, opts) },
		"culvert-ipam": func(t *testing.T, opts Options) {
			a, err := EnsureAddresses(opts)
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			d := ensure(t, opts)
			a, err := OpenAddresses(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if err := a.Claim(lease(3)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(d.dirs.maps, bpf.DatapathMapAddresses)); err != nil {
				t.Fatal(err)
			}
			next(t, opts)
			again, err := OpenAddresses(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if l, err := again.Get("n", lease(3).Addr); err != nil || l != lease(3) {
				t.Errorf("found again: %+v, %v", l, err)
			}
		})
	}
}

// Where another layout has nothing but addresses, they are moved; where it has a datapath,
// that is a load's to do.
func TestPrivilegedAddressesOtherLayout(t *testing.T) {
	opts := options(t)
	a, err := EnsureAddresses(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Claim(lease(4)); err != nil {
		t.Fatal(err)
	}
	other := schemaPath(opts.PinPath, 9)
	if err := os.Rename(schemaPath(opts.PinPath, Schema), other); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAddresses(opts); !errors.Is(err, ErrOtherLayout) {
		t.Errorf("open: %v", err)
	}
	again, err := EnsureAddresses(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if l, err := again.Get("n", lease(4).Addr); err != nil || l != lease(4) {
		t.Errorf("moved: %+v, %v", l, err)
	}
	if hasPins(other) {
		t.Error("the other layout has pins still")
	}
	if err := os.Mkdir(filepath.Join(dirsIn(other).maps, bpf.DatapathMapConfig), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dirsOf(opts.PinPath).maps, bpf.DatapathMapAddresses)); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureAddresses(opts); !errors.Is(err, ErrOtherLayout) {
		t.Errorf("beside another layout's datapath: %v", err)
	}
}
