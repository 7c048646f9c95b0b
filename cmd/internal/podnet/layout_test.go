// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

func TestLayout(t *testing.T) {
	for _, tt := range []struct{ name, result, want string }{
		{"no gateway", `{"ips":[{"address":"10.1.0.2/24"},{"address":"fd01::2/64"}]}`,
			"10.1.0.2>169.254.1.1 fd01::2>fe80::1 | 169.254.1.1/32 0.0.0.0/0>169.254.1.1 ::/0>fe80::1"},
		{"a gateway in the subnet", `{"ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"},{"address":"fd01::2/64","gateway":"fd01::1"}]}`,
			"10.1.0.2>10.1.0.1 fd01::2>fd01::1 | 10.1.0.1/32 fd01::1/128 0.0.0.0/0>10.1.0.1 ::/0>fd01::1"},
		{"two addresses of a family", `{"ips":[{"address":"10.1.0.2/24"},{"address":"10.1.0.3/24","gateway":"10.1.0.1"},{"address":"10.1.0.2/24"}]}`,
			"10.1.0.2>169.254.1.1 10.1.0.3>10.1.0.1 | 169.254.1.1/32 0.0.0.0/0>169.254.1.1"},
		{"its own default route", `{"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.9"}]}`,
			"10.1.0.2>169.254.1.1 | 10.1.0.9/32 0.0.0.0/0>10.1.0.9"},
		{"a default route of another table is not the pod's", `{"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"0.0.0.0/0","table":100}]}`,
			"10.1.0.2>169.254.1.1 | 169.254.1.1/32 0.0.0.0/0>169.254.1.1@100 0.0.0.0/0>169.254.1.1"},
		{"host bits in a destination", `{"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"10.9.9.9/8"}]}`,
			"10.1.0.2>169.254.1.1 | 169.254.1.1/32 10.0.0.0/8>169.254.1.1 0.0.0.0/0>169.254.1.1"},
		{"a route of the other family", `{"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"fd00::/8"}]}`,
			"10.1.0.2>169.254.1.1 | 169.254.1.1/32 0.0.0.0/0>169.254.1.1"},
		{"a route on the link", `{"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"10.2.0.0/16","scope":253}]}`,
			"10.1.0.2>169.254.1.1 | 169.254.1.1/32 10.2.0.0/16 0.0.0.0/0>169.254.1.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := newLayout(ipamResult(t, tt.result))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(l); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestLayoutRefuses(t *testing.T) {
	if _, err := newLayout(&current.Result{}); !errors.Is(err, ErrNoAddress) {
		t.Errorf("no address: got %v", err)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"address":"10.1.0.%d/24"},`, 9), ",")
	for _, result := range []string{
		`{"ips":[{"address":"0.0.0.0/0"}]}`,
		`{"ips":[{"address":"127.0.0.1/8"}]}`,
		`{"ips":[{"address":"ff02::1/64"}]}`,
		`{"ips":[{"address":"10.1.0.2/24","gateway":"fd00::1"}]}`,
		`{"ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.2"}]}`,
		`{"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]}`,
		`{"ips":[` + fmt.Sprintf(many, 1, 2, 3, 4, 5, 6, 7, 8, 9) + `]}`,
	} {
		if _, err := newLayout(ipamResult(t, result)); err == nil {
			t.Errorf("%s was taken", result)
		}
	}
}

func ipamResult(t *testing.T, s string) *current.Result {
	t.Helper()
	r := &current.Result{}
	if err := json.Unmarshal([]byte(s), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func describe(l *layout) string {
	var parts []string
	for _, a := range l.addrs {
		parts = append(parts, fmt.Sprintf("%s>%s", a.addr, a.gateway))
	}
	parts = append(parts, "|")
	for _, r := range l.routes {
		s := r.Dst.String()
		if r.Gateway.IsValid() {
			s += ">" + r.Gateway.String()
		}
		if r.Table != 0 {
			s += fmt.Sprintf("@%d", r.Table)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ")
}

func TestHostName(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range []maps.Owner{{Network: "a", Container: "b", IfName: "c"}, {Network: "ab", IfName: "c"}, {Network: "a", Container: "bc"}, {Network: "a", Container: "b", IfName: "d"}} {
		name := HostName(o)
		if seen[name] || !IsHostName(name) || len(name) > 15 {
			t.Errorf("%s has name %s", o, name)
		}
		seen[name] = true
		if mac := hardwareAddr(o, "pod"); mac[0]&3 != 2 || mac.String() == hardwareAddr(o, "host").String() {
			t.Errorf("%s has MAC %s", o, mac)
		}
	}
	for _, name := range []string{"eth0", "cv", "cv0123456789", "cv0123456789ab0", "cvxyzxyzxyzxyz", "vc0123456789ab"} {
		if IsHostName(name) {
			t.Errorf("%s is taken for ours", name)
		}
	}
}

func TestSmallestMTU(t *testing.T) {
	for _, tt := range []struct {
		mtus []int
		want int
	}{{nil, 1500}, {[]int{9000}, 9000}, {[]int{9000, 1400, 1500}, 1400}} {
		var u netdev.Uplinks
		for _, mtu := range tt.mtus {
			u.Links = append(u.Links, netdev.Link{MTU: mtu})
		}
		if got := smallestMTU(u); got != tt.want {
			t.Errorf("%v: got %d, want %d", tt.mtus, got, tt.want)
		}
	}
}
