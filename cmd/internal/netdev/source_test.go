// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

func TestPrivilegedSourceAddr(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup []string
		v4    string
		v6    string
	}{
		{"no address", nil, "", ""},
		{"no route", []string{"addr add 192.0.2.5/24 dev up0", "addr add fd00::5/64 nodad dev up0"}, "192.0.2.5", "fd00::5"},
		{"default route", []string{"addr add 192.0.2.5/24 dev up0", "addr add fd00::5/64 nodad dev up0",
			"route add default via 192.0.2.1", "route add default via fd00::1"}, "192.0.2.5", "fd00::5"},
		{"the route's own choice", []string{"addr add 192.0.2.5/24 dev up0", "addr add 192.0.2.6/24 dev up0",
			"addr add fd00::5/64 dev up0", "addr add fd00::6/64 nodad dev up0",
			"route add default via 192.0.2.1 src 192.0.2.6", "route add default via fd00::1 src fd00::6"}, "192.0.2.6", "fd00::6"},
		{"another device has the default route", []string{"addr add 192.0.2.5/24 dev up0", "addr add fd00::5/64 nodad dev up0",
			"addr add 198.51.100.5/24 dev up1", "addr add fd01::5/64 nodad dev up1",
			"route add default via 198.51.100.1", "route add default via fd01::1"}, "192.0.2.5", "fd00::5"},
		{"unreachable without a default route", []string{"addr add 192.0.2.5/24 dev up0", "addr add fd00::5/64 nodad dev up0",
			"route add unreachable default metric 4294967294", "route add unreachable ::/0 metric 4294967294"}, "192.0.2.5", "fd00::5"},
		{"scope link: IPv4 takes it", []string{"addr add 192.0.2.5/24 scope link dev up0", "addr add fe80::5/64 dev up0"}, "192.0.2.5", ""},
		{"deprecated", []string{"addr add fd00::5/64 preferred_lft 0 nodad dev up0", "addr add fd00::6/64 nodad dev up0"}, "", "fd00::6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := netns.New(t, "node")
			ns.IP(t, append([]string{"link add up0 type veth peer name far0", "link add up1 type veth peer name far1",
				"link set up0 up", "link set up1 up", "link set far0 up", "link set far1 up"}, tt.setup...)...)
			in(t, ns, func(h *Handle) {
				l, err := h.LinkNamed("up0")
				if err != nil {
					t.Fatal(err)
				}
				for family, want := range map[int]string{4: tt.v4, 6: tt.v6} {
					got, err := h.SourceAddr(l.Index, family)
					if wanted, _ := netip.ParseAddr(want); err != nil || got != wanted {
						t.Errorf("IPv%d: got %s, %v, want %q", family, got, err, want)
					}
				}
				if got, err := h.SourceAddr(9999, 4); err != nil || got.IsValid() {
					t.Errorf("no such device: %s, %v", got, err)
				}
			})
		})
	}
}

func TestPrivilegedHostPorts(t *testing.T) {
	ns := netns.New(t, "node")
	in(t, ns, func(h *Handle) {
		got, err := h.HostPorts()
		if want := []Ports{{32768, 60999}}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("defaults: %v, %v", got, err)
		}
	})
	// More text than a page of it: the kernel would cut it.
	var list []string
	for port := 1; port < 65535; port += 2 {
		list = append(list, fmt.Sprint(port))
	}
	ns.Sysctl(t, "net/ipv4/ip_local_port_range", "20001 60000")
	ns.Sysctl(t, "net/ipv4/ip_local_reserved_ports", strings.Join(list, ","))
	in(t, ns, func(h *Handle) {
		got, err := h.HostPorts()
		if err != nil || len(got) != 1+len(list) || got[0] != (Ports{20001, 60000}) || got[len(list)] != (Ports{65533, 65533}) {
			t.Errorf("%d ranges, %v", len(got), err)
		}
	})
}

func TestParsePorts(t *testing.T) {
	for list, want := range map[string][]Ports{
		"": nil, ",": nil, "80": {{80, 80}}, "80,8080-8090": {{80, 80}, {8080, 8090}},
	} {
		if got, err := parsePorts(list); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"x", "1-x", "70000", "-1", "1-2-3"} {
		if got, err := parsePorts(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
}
