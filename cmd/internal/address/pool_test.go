// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

// bench is a Pool with a clock that stands.
type bench struct {
	*Pool
	now atomic.Int64
}

func newPool(t testing.TB) *bench {
	t.Helper()
	dir := netns.PinPath(t)
	mapstest.Pin(t, dir)
	table, err := maps.OpenAddresses(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	b := &bench{}
	b.now.Store(int64(time.Hour))
	var mu sync.Mutex
	b.Pool = &Pool{
		Table: table, CoolDown: CoolDown, Now: func() time.Duration { return time.Duration(b.now.Load()) },
		Lock: func() (func(), error) { mu.Lock(); return mu.Unlock, nil },
	}
	return b
}

func (b *bench) pass(d time.Duration) { b.now.Add(int64(d)) }

func owner(name string) maps.Owner {
	return maps.Owner{Network: "net", Container: name, IfName: "eth0"}
}

func (b *bench) add(name string, sets []Set, wishes ...netip.Addr) ([]netip.Addr, error) {
	return b.Add(maps.Tenant{Owner: owner(name)}, sets, wishes)
}

func (b *bench) mustAdd(t testing.TB, name string, sets []Set, wishes ...netip.Addr) []netip.Addr {
	t.Helper()
	got, err := b.add(name, sets, wishes...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// state is the table as a whole: what an undo has to give back.
func (b *bench) state(t testing.TB) string {
	t.Helper()
	leases, err1 := maps.Collect(b.Table.Leases())
	tenants, err2 := maps.Collect(b.Table.Tenants())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range leases {
		lines = append(lines, fmt.Sprint(l.Addr, l.Owner, l.State, l.Since))
	}
	for _, o := range tenants {
		lines = append(lines, fmt.Sprint(o.Owner, o.Addrs))
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

func TestPrivilegedPool(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/24"), set(t, "fd00::/64")}
	first := b.mustAdd(t, "a", sets)
	if fmt.Sprint(first) != "[10.0.0.2 fd00::2]" {
		t.Errorf("first: %v", first)
	}
	before := b.state(t)
	if again := b.mustAdd(t, "a", sets); !slices.Equal(first, again) || b.state(t) != before {
		t.Errorf("asked again: %v, %s, before %s", again, b.state(t), before)
	}
	if second := b.mustAdd(t, "b", sets); fmt.Sprint(second) != "[10.0.0.3 fd00::3]" {
		t.Errorf("second: %v", second)
	}
	for range 2 { // the second time there is nothing
		if err := b.Release(owner("a")); err != nil {
			t.Error(err)
		}
	}
	if held, err := b.Held(owner("a")); err != nil || len(held) != 0 {
		t.Errorf("held after DEL: %v, %v", held, err)
	}
	if third := b.mustAdd(t, "c", sets); fmt.Sprint(third) != "[10.0.0.4 fd00::4]" {
		t.Errorf("an address that was released a moment ago is not the next: %v", third)
	}
	if _, err := b.Table.Tenant(owner("a")); !errors.Is(err, maps.ErrNotFound) {
		t.Errorf("row after DEL: %v", err)
	}
}

// Two interfaces of one container, and one name in two networks, are four attachments.
func TestPrivilegedL5Owners(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/24")}
	got := map[string]maps.Owner{}
	for _, o := range []maps.Owner{{Network: "n", Container: "a", IfName: "eth0"}, {Network: "n", Container: "a", IfName: "eth1"}, {Network: "m", Container: "a", IfName: "eth0"}} {
		addrs, err := b.Add(maps.Tenant{Owner: o}, sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		got[o.Network+addrs[0].String()] = o
	}
	if len(got) != 3 {
		t.Errorf("got %v", got)
	}
	if err := b.Release(maps.Owner{Network: "n", Container: "a", IfName: "eth1"}); err != nil {
		t.Fatal(err)
	}
	if held, err := b.Held(got["n10.0.0.2"]); err != nil || len(held) != 1 {
		t.Errorf("eth0 has %v, %v after DEL of eth1", held, err)
	}
}

// The one that was released longest ago is given, once it has cooled down.
func TestPrivilegedOldestFirst(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/29")} // .2 to .6
	for i := range 5 {
		b.mustAdd(t, fmt.Sprint(i), sets)
	}
	if _, err := b.add("x", sets); !errors.Is(err, ErrNoneLeft) {
		t.Errorf("full: %v", err)
	}
	if err := b.Full("net", sets); !errors.Is(err, ErrNoneLeft) {
		t.Errorf("status: %v", err)
	}
	for _, name := range []string{"3", "0", "4"} { // .5 .2 .6
		if err := b.Release(owner(name)); err != nil {
			t.Fatal(err)
		}
		b.pass(time.Second)
	}
	if _, err := b.add("x", sets); !errors.Is(err, ErrCooling) {
		t.Errorf("too early: %v", err)
	}
	if err := b.Full("net", sets); err != nil {
		t.Errorf("status while addresses cool down: %v", err)
	}
	if got := b.mustAdd(t, "w", sets, addr("10.0.0.6")); got[0] != addr("10.0.0.6") {
		t.Errorf("asked for, it is given at once: %v", got)
	}
	b.pass(CoolDown)
	for i, want := range []string{"10.0.0.5", "10.0.0.2"} {
		if got := b.mustAdd(t, fmt.Sprint("y", i), sets); got[0] != addr(want) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if _, err := b.add("z", sets); !errors.Is(err, ErrNoneLeft) {
		t.Errorf("full again: %v", err)
	}
}

// A set that is reserved as a whole is as good as full, also for who has an address of it.
func TestPrivilegedAllReserved(t *testing.T) {
	b := newPool(t)
	four, six := set(t, "10.0.0.0/24"), set(t, "fd00::/64")
	b.mustAdd(t, "a", []Set{four, six})
	before := b.state(t)
	sets := []Set{four, reserving(t, six, "fd00::/64")}
	for _, name := range []string{"a", "b"} {
		if _, err := b.add(name, sets); !errors.Is(err, ErrNoneLeft) || !strings.Contains(err.Error(), "all are reserved") || b.state(t) != before {
			t.Errorf("ADD %s: %v, %s", name, err, b.state(t))
		}
	}
	if err := b.Full("net", sets); !errors.Is(err, ErrNoneLeft) || !strings.Contains(err.Error(), "all are reserved") {
		t.Errorf("STATUS: %v", err)
	}
	if err := b.Check(owner("a"), sets, []netip.Addr{addr("10.0.0.2"), addr("fd00::2")}); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

// Nobody is given what is reserved: it is passed over as new and as one that was released.
func TestPrivilegedReserved(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/29")} // .2 to .6
	b.mustAdd(t, "a", sets, addr("10.0.0.4"))
	if err := b.Release(owner("a")); err != nil {
		t.Fatal(err)
	}
	b.pass(CoolDown)
	sets = []Set{reserving(t, sets[0], "10.0.0.2", "10.0.0.4/31")}
	for i, want := range []string{"10.0.0.3", "10.0.0.6"} {
		if got := b.mustAdd(t, fmt.Sprint(i), sets); got[0] != addr(want) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if _, err := b.add("x", sets); !errors.Is(err, ErrNoneLeft) {
		t.Errorf("full: %v", err)
	}
}

// L1: where one family has nothing, the other one's claim is taken back, whatever it was.
func TestPrivilegedL1AllOrNothing(t *testing.T) {
	b := newPool(t)
	four, six := set(t, "10.0.0.0/29"), set(t, "fd00::/125 fd00::5 fd00::5")
	b.mustAdd(t, "last6", []Set{six})
	fresh := b.state(t)
	if _, err := b.add("x", []Set{four, six}); !errors.Is(err, ErrNoneLeft) || b.state(t) != fresh {
		t.Errorf("new: %v, %s", err, b.state(t))
	}
	for i := range 5 {
		b.mustAdd(t, fmt.Sprint(i), []Set{four})
	}
	if err := b.Release(owner("2")); err != nil {
		t.Fatal(err)
	}
	b.pass(CoolDown)
	used := b.state(t)
	if _, err := b.add("x", []Set{four, six}); !errors.Is(err, ErrNoneLeft) || b.state(t) != used {
		t.Errorf("used before: %v, %s", err, b.state(t))
	}
	if _, err := b.add("1", []Set{four, six}); !errors.Is(err, ErrNoneLeft) || b.state(t) != used {
		t.Errorf("held already: %v, %s", err, b.state(t))
	}
}

func TestPrivilegedRequests(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/24"), set(t, "fd00::/64")}
	got := b.mustAdd(t, "a", sets, addr("fd00::77"))
	if fmt.Sprint(got) != "[10.0.0.2 fd00::77]" {
		t.Errorf("one of two: %v", got)
	}
	before := b.state(t)
	_, err := b.add("b", sets, addr("10.0.0.9"), addr("fd00::77"))
	var held HeldError
	if !errors.As(err, &held) || held.Holder != owner("a") || b.state(t) != before {
		t.Errorf("held: %v, %s", err, b.state(t))
	}
	if _, err := b.add("b", sets, addr("10.0.0.9"), addr("10.0.0.8")); err == nil {
		t.Error("two of one set are given")
	}
	// A range that changed: the new address is given, the old one goes back.
	moved := b.mustAdd(t, "a", []Set{set(t, "10.5.0.0/24"), sets[1]})
	if fmt.Sprint(moved) != "[10.5.0.2 fd00::77]" {
		t.Errorf("another range: %v", moved)
	}
	if l, err := b.Table.Get("net", addr("10.0.0.2")); err != nil || l.State != maps.AddressReleased {
		t.Errorf("the old address: %+v, %v", l, err)
	}
}

// L1, L4: whoever is killed between the rows leaves nothing that DEL does not find, and a
// late DEL harms no successor.
func TestPrivilegedL4Owner(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/24")}
	b.mustAdd(t, "a", sets)
	// "b" is killed before, "c" behind its claim.
	for _, name := range []string{"b", "c"} {
		if err := b.Table.PutTenant(maps.Tenant{Owner: owner(name), Addrs: []netip.Addr{addr("10.0.0.2"), addr("10.0.0.3")}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Table.Claim(maps.Lease{Addr: addr("10.0.0.3"), Owner: owner("c"), State: maps.AddressHeld}); err != nil {
		t.Fatal(err)
	}
	if got := b.mustAdd(t, "c", sets); got[0] != addr("10.0.0.3") {
		t.Errorf("ADD again: %v", got)
	}
	for _, name := range []string{"b", "c"} {
		if err := b.Release(owner(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Check(owner("a"), sets, []netip.Addr{addr("10.0.0.2")}); err != nil {
		t.Errorf("a's is gone: %v", err)
	}
	if l, err := b.Table.Get("net", addr("10.0.0.3")); err != nil || l.State != maps.AddressReleased {
		t.Errorf("c's is not released: %+v, %v", l, err)
	}
}

func TestPrivilegedP9Check(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/24")}
	got := b.mustAdd(t, "a", sets)
	b.mustAdd(t, "b", sets)
	foreign := addr("192.0.2.1") // another plugin's
	if err := b.Check(owner("a"), sets, append(got, foreign)); err != nil {
		t.Error(err)
	}
	var held HeldError
	if err := b.Check(owner("a"), sets, []netip.Addr{addr("10.0.0.3")}); !errors.As(err, &held) || held.Holder != owner("b") {
		t.Errorf("another one's: %v", err)
	}
	if err := b.Check(owner("a"), sets, []netip.Addr{addr("10.0.0.9")}); !errors.Is(err, ErrNotHeld) {
		t.Errorf("nobody's: %v", err)
	}
	if err := b.Check(owner("x"), sets, nil); !errors.Is(err, ErrNotHeld) {
		t.Errorf("unknown: %v", err)
	}
}

func TestPrivilegedP10GC(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/24")}
	for _, name := range []string{"a", "b", "dead"} {
		b.mustAdd(t, name, sets)
	}
	if _, err := b.Add(maps.Tenant{Owner: maps.Owner{Network: "other", Container: "o", IfName: "eth0"}}, sets, nil); err != nil {
		t.Fatal(err)
	}
	alive := func(o maps.Tenant) bool { return o.Container != "dead" }
	for _, step := range []struct {
		valid []Attachment
		left  string
	}{
		{nil, "[a b]"},
		{[]Attachment{{"b", "eth0"}, {"a", "eth1"}}, "[b]"},
		{[]Attachment{}, "[]"},
	} {
		if _, err := b.GC("net", step.valid, alive); err != nil {
			t.Fatal(err)
		}
		left := []string{}
		for l, err := range b.Table.Leases() {
			if err == nil && l.Network == "net" && l.State == maps.AddressHeld {
				left = append(left, l.Container)
			}
		}
		if slices.Sort(left); fmt.Sprint(left) != step.left {
			t.Errorf("valid %v: left are %v, want %s", step.valid, left, step.left)
		}
	}
	if l, err := b.Table.Get("other", addr("10.0.0.2")); err != nil || l.State != maps.AddressHeld {
		t.Errorf("another network's: %+v, %v", l, err)
	}
}

// L7: what lives is claimed before anything is given, once.
func TestPrivilegedL7Rebuild(t *testing.T) {
	b := newPool(t)
	calls := 0
	pods := func() ([]maps.Iface, error) {
		calls++
		return []maps.Iface{
			{Owner: owner("a"), Addrs: []netip.Addr{addr("10.0.0.2"), addr("fd00::2")}, Netns: 7, NetnsPath: "/run/netns/a"},
			{Owner: owner("twice"), Addrs: []netip.Addr{addr("10.0.0.2")}},
		}, nil
	}
	for range 2 {
		if _, err := b.Rebuild(pods); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Errorf("asked %d times", calls)
	}
	sets := []Set{set(t, "10.0.0.0/24"), set(t, "fd00::/64")}
	if got := b.mustAdd(t, "b", sets); fmt.Sprint(got) != "[10.0.0.3 fd00::3]" {
		t.Errorf("new: %v", got)
	}
	if got := b.mustAdd(t, "a", sets); fmt.Sprint(got) != "[10.0.0.2 fd00::2]" {
		t.Errorf("of the one that lives: %v", got)
	}
	if err := b.Release(owner("twice")); err != nil {
		t.Error(err)
	}
	if err := b.Check(owner("a"), sets, []netip.Addr{addr("10.0.0.2")}); err != nil {
		t.Error(err)
	}
}

// L6: no address twice, and none left over.
func TestPrivilegedL6Parallel(t *testing.T) {
	b := newPool(t)
	sets := []Set{set(t, "10.0.0.0/26"), set(t, "fd00::/122")} // 61 and 62
	var wg sync.WaitGroup
	var mu sync.Mutex
	for round := range 3 {
		seen := map[netip.Addr]string{}
		for i := range 61 {
			wg.Go(func() {
				name := fmt.Sprint(round, "-", i)
				got, err := b.add(name, sets)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				for _, a := range got {
					if seen[a] != "" {
						t.Errorf("%s has %s, as has %s", name, a, seen[a])
					}
					seen[a] = name
				}
			})
		}
		wg.Wait()
		for i := range 61 {
			wg.Go(func() {
				if err := b.Release(owner(fmt.Sprint(round, "-", i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b.pass(CoolDown)
	}
	if tenants, err := maps.Collect(b.Table.Tenants()); err != nil || len(tenants) != 0 {
		t.Errorf("left: %v, %v", tenants, err)
	}
}

// What an ADD costs in the table while a thousand pods are there.
func BenchmarkPrivilegedAdd(b *testing.B) {
	p := newPool(b)
	sets := []Set{set(b, "10.0.0.0/8")}
	n := 0
	for b.Loop() {
		p.mustAdd(b, fmt.Sprint(n), sets)
		if n++; n%1000 == 0 {
			b.StopTimer()
			for i := n - 1000; i < n; i++ {
				p.Release(owner(fmt.Sprint(i)))
			}
			p.pass(CoolDown)
			p.prune()
			b.StartTimer()
		}
	}
}
