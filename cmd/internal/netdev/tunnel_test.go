// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

func addrs(s ...string) (list []netip.Addr) {
	for _, a := range s {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

func TestPrivilegedTunnel(t *testing.T) {
	in(t, netns.New(t, "node"), func(h *Handle) {
		calls := 0
		c := TunnelConfig{MTU: 1450, Addrs: addrs("10.9.1.0", "fd00:9:1::"), Attach: func(index int) error {
			if calls++; calls > 1 {
				return nil
			}
			if l, err := h.Link(index); err != nil || l.Up {
				t.Errorf("attached to %+v, %v", l, err)
			}
			return nil
		}}
		ensure := func(what string, mtu int, want ...string) int {
			t.Helper()
			index, err := h.EnsureTunnel(c)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			l, err := h.Link(index)
			if err != nil || !l.Up || l.MTU != mtu || l.Name != TunnelName || !l.IsTunnel() || l.MAC.String() != tunnelMAC.String() {
				t.Errorf("%s: %+v, %v", what, l, err)
			}
			has, err := h.Addresses(index)
			if slices.SortFunc(has, netip.Addr.Compare); err != nil || !slices.Equal(has, addrs(want...)) {
				t.Errorf("%s: addresses %v, %v; want %v", what, has, err, want)
			}
			return index
		}
		first := ensure("made", 1450, "10.9.1.0", "fd00:9:1::")
		c.MTU, c.Addrs = 1430, addrs("10.9.2.0", "fd00:9:2::")
		if again := ensure("changed", 1430, "10.9.2.0", "fd00:9:2::"); again != first {
			t.Errorf("made anew: %d, was %d", again, first)
		}
		if calls != 2 {
			t.Errorf("attached %d times", calls)
		}
		if all, err := h.Tunnels(); err != nil || len(all) != 1 || all[0].Index != first {
			t.Errorf("tunnels: %+v, %v", all, err)
		}
		if u, err := h.Uplinks(nil, func(string) bool { return false }); err != nil || len(u.Links)+len(u.LeftOut) != 0 {
			t.Errorf("uplinks: %+v, %v", u, err)
		}
		if _, err := h.Uplinks([]string{TunnelName}, nil); !errors.As(err, new(NoSuchUplink)) {
			t.Errorf("uplink by name: %v", err)
		}
		c.Port = 4790
		if again := ensure("of another port", 1430, "10.9.2.0", "fd00:9:2::"); again == first {
			t.Error("kept with another port")
		}
	})
}

func TestPrivilegedTunnelOfOthers(t *testing.T) {
	ns := netns.New(t, "node")
	ns.IP(t, "link add culvert-vxlan type vxlan external dstport 4789", "link add other type vxlan id 5 dstport 4788", "link set other up")
	in(t, ns, func(h *Handle) {
		if _, err := h.EnsureTunnel(TunnelConfig{MTU: 1450}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a device of that name: %v", err)
		}
		if _, err := h.EnsureTunnel(TunnelConfig{Name: "ours", MTU: 1450, Port: 4788}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a port that is taken: %v", err)
		}
	})
}

func TestPrivilegedRemoteRoutes(t *testing.T) {
	ns := netns.New(t, "node")
	ns.IP(t, "link add up0 type veth peer name far", "link set up0 up", "link set far up",
		"addr add 192.0.2.1/24 dev up0", "addr add fd00:2::1/64 dev up0 nodad", "route add 10.7.7.0/24 via 192.0.2.77")
	p := netip.MustParsePrefix
	by := func(prefix, via string) RemoteRoute {
		return RemoteRoute{Prefix: p(prefix), Via: netip.MustParseAddr(via)}
	}
	in(t, ns, func(h *Handle) {
		tunnel := func(prefix, src string) RemoteRoute {
			return RemoteRoute{Prefix: p(prefix), Tunnel: true, Src: netip.MustParseAddr(src)}
		}
		sync := func(what string, changed int, want ...RemoteRoute) {
			t.Helper()
			for i, n := range []int{changed, 0} {
				if got, err := h.SyncRemoteRoutes(want); err != nil || got != n {
					t.Errorf("%s, time %d: %d changes, %v; want %d", what, i+1, got, err, n)
				}
			}
			have, err := h.remoteRoutes()
			if err != nil || len(have) != len(want) {
				t.Errorf("%s: %v, %v", what, have, err)
			}
			for _, r := range have {
				if !slices.Contains(want, h.toRemote(r)) {
					t.Errorf("%s: %v is not wanted", what, r)
				}
			}
		}
		if _, err := h.SyncRemoteRoutes([]RemoteRoute{{Prefix: p("10.1.2.0/24"), Tunnel: true}}); err == nil {
			t.Error("a route by a tunnel that is not there")
		}
		c := TunnelConfig{MTU: 1450, Addrs: addrs("10.1.0.0", "fd00:1::")}
		if _, err := h.EnsureTunnel(c); err != nil {
			t.Fatal(err)
		}
		own4, own6 := RemoteRoute{Prefix: p("10.1.0.0/24"), Unreachable: true}, RemoteRoute{Prefix: p("fd00:1::/64"), Unreachable: true}
		sync("first", 7, own4, own6, tunnel("10.1.2.0/24", "10.1.0.0"), tunnel("fd00:1:2::/64", "fd00:1::"),
			by("10.1.3.0/24", "192.0.2.3"), by("10.1.4.0/24", "fd00:2::4"), by("fd00:1:3::/64", "fd00:2::3"))
		sync("each the other way", 6, own6, by("10.1.2.0/24", "192.0.2.2"), by("fd00:1:2::/64", "fd00:2::2"),
			tunnel("10.1.3.0/24", "10.1.0.0"), tunnel("fd00:1:3::/64", "fd00:1::"), by("10.1.4.0/24", "192.0.2.5"))
		sync("unreachable, and not", 4, RemoteRoute{Prefix: p("10.1.2.0/24"), Unreachable: true}, by("10.7.7.0/24", "192.0.2.2"),
			RemoteRoute{Prefix: p("fd00:1:2::/64"), Unreachable: true}, by("fd00:1::/64", "fd00:2::1:2"),
			tunnel("10.1.3.0/24", "10.1.0.0"), tunnel("fd00:1:3::/64", "fd00:1::"), by("10.1.4.0/24", "192.0.2.5"))
		c.Addrs = addrs("10.1.8.0", "fd00:1:8::")
		if index, err := h.EnsureTunnel(c); err != nil {
			t.Fatal(err)
		} else if has, err := h.Addresses(index); err != nil || len(has) != 4 { // routes have them for their source
			t.Errorf("addresses %v, %v", has, err)
		}
		sync("other sources", 2+4, tunnel("10.1.3.0/24", "10.1.8.0"), tunnel("fd00:1:3::/64", "fd00:1:8::"), by("10.1.4.0/24", "192.0.2.5"))
		if index, err := h.EnsureTunnel(c); err != nil {
			t.Fatal(err)
		} else if has, err := h.Addresses(index); err != nil || len(has) != 2 {
			t.Errorf("addresses then: %v, %v", has, err)
		}
		sync("none", 3)
	})
	if got := strings.TrimSpace(ns.MustRun(t, "", "ip", "route", "show", "10.7.7.0/24")); got != "10.7.7.0/24 via 192.0.2.77 dev up0" {
		t.Errorf("an administrator's route is %q", got)
	}
}
