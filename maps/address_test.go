// SPDX-License-Identifier: Apache-2.0

package maps_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

func addresses(t *testing.T) *maps.Addresses {
	t.Helper()
	dir := netns.PinPath(t)
	if _, err := maps.OpenAddresses(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open what is not there: %v", err)
	}
	mapstest.Pin(t, dir)
	a, err := maps.OpenAddresses(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestPrivilegedAddresses(t *testing.T) {
	a := addresses(t)
	owner := maps.Owner{Network: "net", Container: "c", IfName: "eth0"}
	for _, addr := range []netip.Addr{v4, v6} {
		l := maps.Lease{Addr: addr, Owner: owner, State: maps.AddressHeld, Since: 9}
		if err := a.Change(l); !errors.Is(err, maps.ErrNotFound) {
			t.Errorf("change of none: %v", err)
		}
		if err := a.Claim(l); err != nil {
			t.Fatal(err)
		}
		if err := a.Claim(l); !errors.Is(err, maps.ErrExists) {
			t.Errorf("claimed twice: %v", err)
		}
		if got, err := a.Get("net", addr); err != nil || got != l {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := a.Get("other", addr); !errors.Is(err, maps.ErrNotFound) {
			t.Errorf("of another network: %v", err)
		}
	}
	tenant := maps.Tenant{Owner: owner, Addrs: []netip.Addr{v4, v6}, Netns: 7, NetnsPath: "/run/netns/c", Since: 3}
	if err := a.PutTenant(tenant); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Tenant(owner); err != nil || !reflect.DeepEqual(got, tenant) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := a.SetCursor("net", v4, v6, 1); err != nil {
		t.Fatal(err)
	}
	if last, err := a.Cursor("net", v4); err != nil || last != v6 {
		t.Errorf("cursor %s, %v", last, err)
	}
	if last, err := a.Cursor("net", v6); err != nil || last.IsValid() {
		t.Errorf("cursor of another set %s, %v", last, err)
	}
	if done, err := a.Rebuilt(); err != nil || done {
		t.Errorf("rebuilt: %v, %v", done, err)
	}
	if err := a.SetRebuilt(1); err != nil {
		t.Fatal(err)
	}
	if done, err := a.Rebuilt(); err != nil || !done {
		t.Errorf("rebuilt: %v, %v", done, err)
	}
	leases, err1 := maps.Collect(a.Leases())
	tenants, err2 := maps.Collect(a.Tenants())
	if err := errors.Join(err1, err2); err != nil || len(leases) != 2 || len(tenants) != 1 {
		t.Errorf("%v, %v, %v", leases, tenants, err)
	}
	for range 2 { // the second time there is none
		if err := errors.Join(a.Delete("net", v4), a.DeleteTenant(owner)); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Tenant(owner); !errors.Is(err, maps.ErrNotFound) {
		t.Errorf("deleted row: %v", err)
	}
}

func TestPrivilegedAddressesRefuse(t *testing.T) {
	a := addresses(t)
	long := strings.Repeat("x", 200)
	for want, err := range map[string]error{
		"network":     a.Claim(maps.Lease{Addr: v4, Owner: maps.Owner{Network: long}}),
		"container":   a.Claim(maps.Lease{Addr: v4, Owner: maps.Owner{Container: long}}),
		"no address":  a.Claim(maps.Lease{}),
		"netns path":  a.PutTenant(maps.Tenant{NetnsPath: long}),
		"9 addresses": a.PutTenant(maps.Tenant{Addrs: make([]netip.Addr, 9)}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}
