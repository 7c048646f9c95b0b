// SPDX-License-Identifier: Apache-2.0

package address

import (
	"math"
	"net/netip"
	"strings"
	"testing"
)

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// set makes one of "SUBNET FIRST LAST GATEWAY"; "-" leaves a part out.
func set(t testing.TB, texts ...string) Set {
	t.Helper()
	var s Set
	for _, text := range texts {
		part := strings.Fields(strings.ReplaceAll(text, "-", " ") + " ")
		at := func(i int) netip.Addr {
			if i < len(part) && part[i] != "." {
				return addr(part[i])
			}
			return netip.Addr{}
		}
		r, err := newRange(netip.MustParsePrefix(part[0]), at(1), at(2), at(3))
		if err != nil {
			t.Fatal(err)
		}
		s.Ranges = append(s.Ranges, r)
	}
	sets := []Set{s}
	err := checkSets(sets)
	if err == nil {
		err = checkAnything(sets, merge(ownOf(sets)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sets[0]
}

// reserving is a set without what is reserved.
func reserving(t testing.TB, s Set, reserved ...string) Set {
	t.Helper()
	list := ownOf([]Set{s})
	for _, text := range reserved {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, span{a, a})
			continue
		}
		list = append(list, spanOf(netip.MustParsePrefix(text)))
	}
	sets := []Set{s}
	seal(sets, merge(list))
	return sets[0]
}

func TestRangeDefaults(t *testing.T) {
	for _, tt := range []struct{ subnet, first, last, gateway string }{
		{"10.1.0.0/16", "10.1.0.1", "10.1.255.255", "10.1.0.1"},
		{"10.1.2.8/30", "10.1.2.9", "10.1.2.11", "10.1.2.9"},
		{"fd00:1::/64", "fd00:1::1", "fd00:1::ffff:ffff:ffff:ffff", "fd00:1::1"},
		{"fd00:1::4/126", "fd00:1::5", "fd00:1::7", "fd00:1::5"},
	} {
		r, err := newRange(netip.MustParsePrefix(tt.subnet), netip.Addr{}, netip.Addr{}, netip.Addr{})
		if err != nil || r.First != addr(tt.first) || r.Last != addr(tt.last) || r.Gateway != addr(tt.gateway) {
			t.Errorf("%s: %+v, %v", tt.subnet, r, err)
		}
	}
}

func TestRangeRefused(t *testing.T) {
	for _, tt := range []struct{ subnet, first, last, gateway, key string }{
		{"10.0.0.0/31", "", "", "", "subnet"},
		{"10.0.0.1/32", "", "", "", "subnet"},
		{"fd00::/127", "", "", "", "subnet"},
		{"10.0.0.1/24", "", "", "", "subnet"},
		{"10.0.0.0/24", "10.0.1.1", "", "", "rangeStart"},
		{"10.0.0.0/24", "", "fd00::1", "", "rangeEnd"},
		{"10.0.0.0/24", "10.0.0.9", "10.0.0.8", "", "rangeEnd"},
		{"10.0.0.0/24", "", "", "10.0.1.1", "gateway"},
	} {
		_, err := newRange(netip.MustParsePrefix(tt.subnet), addr(tt.first), addr(tt.last), addr(tt.gateway))
		if err == nil || !strings.HasPrefix(err.Error(), tt.key+": ") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestSetSize(t *testing.T) {
	for _, tt := range []struct {
		set  Set
		want uint64
	}{
		{set(t, "10.0.0.0/30"), 1},
		{set(t, "10.0.0.0/24"), 253},
		{set(t, "10.0.0.0/22"), 1021},
		{set(t, "10.0.0.0/24 10.0.0.10 10.0.0.19"), 10},
		{set(t, "10.0.0.0/24 10.0.0.10 10.0.0.19 10.0.0.12"), 9},
		{set(t, "10.0.0.0/24 10.0.0.10 10.0.0.19 10.0.0.30", "10.0.0.0/24 10.0.0.30 10.0.0.39 10.0.0.15"), 18},
		{set(t, "fd00::/120"), 254},
		{set(t, "fd00::/64"), math.MaxUint64 - 1}, // and without its own and the gateway's
		{set(t, "fd00::/48"), math.MaxUint64},
		{reserving(t, set(t, "10.0.0.0/24"), "10.0.0.128/25", "10.0.0.7", "10.0.0.8", "10.1.0.0/16", "fd00::/8"), 124},
		{reserving(t, set(t, "fd00::/120"), "fd00::80/121", "fd00::a0/123"), 126},
		{reserving(t, set(t, "fd00::/63"), "fd00::/64"), math.MaxUint64},
		{reserving(t, set(t, "fd00::/64"), "fd00::/65"), 1 << 63},
		{reserving(t, set(t, "fd00::/64"), "fd00::/64"), 0},
		{reserving(t, set(t, "255.255.255.0/24"), "255.255.255.128/25"), 126},
	} {
		if got := tt.set.Size(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.set, got, tt.want)
		}
	}
}

// A walk gives each address once, none that is reserved, and begins again.
func TestSetAfter(t *testing.T) {
	for _, s := range []Set{
		set(t, "10.0.0.0/29"),
		set(t, "10.0.0.0/24 10.0.0.4 10.0.0.6", "10.0.1.0/24 10.0.1.254 10.0.1.255"),
		set(t, "fd00::/125 fd00::1 fd00::7 fd00::7"),
		set(t, "10.0.0.0/30"),
		reserving(t, set(t, "10.0.0.0/28"), "10.0.0.2", "10.0.0.4/31", "10.0.0.14"),
		reserving(t, set(t, "10.0.0.0/29", "10.0.1.0/29"), "10.0.0.0/29"),
	} {
		seen := map[netip.Addr]bool{}
		a := netip.Addr{}
		for range s.Size() {
			if a = s.After(a); seen[a] || !s.Gives(a) {
				t.Errorf("%s: gives %s after %v", s, a, seen)
			}
			seen[a] = true
		}
		if next := s.After(a); !seen[next] || next != s.After(netip.Addr{}) {
			t.Errorf("%s: behind the last comes %s", s, next)
		}
		if next := s.After(addr("192.0.2.1")); next != s.After(netip.Addr{}) {
			t.Errorf("%s: behind a foreign address comes %s", s, next)
		}
	}
}

func TestNeverGiven(t *testing.T) {
	s := set(t, "10.0.0.0/24 10.0.0.0 10.0.0.255 10.0.0.7")
	for _, a := range []string{"10.0.0.0", "10.0.0.7", "10.0.0.255", "10.0.1.1", "fd00::1"} {
		if s.Gives(addr(a)) {
			t.Errorf("gives %s", a)
		}
	}
	if v6 := set(t, "fd00::/120"); !v6.Gives(addr("fd00::ff")) || v6.Gives(addr("fd00::")) {
		t.Error("IPv6 has no broadcast address, but the routers' own")
	}
}

// What is reserved is passed over at once, however much it is.
func TestReserved(t *testing.T) {
	half := reserving(t, set(t, "fd00::/64"), "fd00::/65", "fd00:0:0:0:ffff::/80")
	if a := half.After(addr("fd00::5")); a != addr("fd00:0:0:0:8000::") {
		t.Errorf("behind a reserved address: %s", a)
	}
	if a := half.After(addr("fd00:0:0:0:fffe:ffff:ffff:ffff")); a != addr("fd00:0:0:0:8000::") {
		t.Errorf("behind the last: %s", a)
	}
	for text, want := range map[string]bool{"fd00::77": false, "fd00:0:0:0:8000::": true, "fd00:0:0:0:ffff::1": false} {
		if half.Gives(addr(text)) != want {
			t.Errorf("gives %s: %v", text, !want)
		}
	}
	all := reserving(t, set(t, "fd00::/64"), "fd00::/8")
	if a := all.After(netip.Addr{}); a.IsValid() || all.Size() != 0 {
		t.Errorf("of nothing: %s, %d", a, all.Size())
	}
}
