// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"encoding/json"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// FuzzWitness: the alias of a veth, which anybody may write, tells an owner only if the
// device's name is that owner's; and what we write is read as it was.
func FuzzWitness(f *testing.F) {
	f.Add("culvert net c1 eth0 1 /run/netns/a", "cv0123456789ab", "net", "c1", "eth0")
	f.Add("culvert  c1 eth0 zz ", "", "", "", "")
	f.Add("culvert net c1 eth0 ffffffffff /a b c", "x", "n", "c", "lo")
	f.Fuzz(func(t *testing.T, alias, device, network, container, ifname string) {
		if i, ok := readWitness(netdev.Link{Index: 5, Name: device, Alias: alias}); ok && HostName(i.Owner) != device {
			t.Errorf("%q on %q is %+v", alias, device, i)
		}
		owner := maps.Owner{Network: network, Container: container, IfName: ifname}
		w := witness{maps.Iface{Owner: owner, NetnsPath: "/run/netns/a b", Flags: maps.PodSourceCheck}}
		i, ok := readWitness(netdev.Link{Index: 5, Name: HostName(owner), Alias: w.String()})
		if ok && (i.Owner != owner || i.NetnsPath != w.NetnsPath || i.Flags != w.Flags) {
			t.Errorf("%+v is read as %+v", w, i)
		}
	})
}

// FuzzLayout: an IPAM result, however odd, makes a layout that the pod's interface and the
// tables can hold, or an error.
func FuzzLayout(f *testing.F) {
	f.Add([]byte(`{"ips":[{"address":"10.0.0.1/24","gateway":"10.0.0.254"},{"address":"fd00::1/64"}],"routes":[{"dst":"0.0.0.0/0","mtu":1400,"advmss":1300,"priority":5},{"dst":"::/0","gw":"fe80::9","table":7,"scope":253}]}`))
	f.Add([]byte(`{"ips":[{"address":"::ffff:10.0.0.1/120","gateway":"::"},null],"routes":[null,{"dst":"10.0.0.0/8","gw":"10.0.0.1"}]}`))
	f.Add([]byte(`{"ips":[{"address":"169.254.1.1/32"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r current.Result
		if json.Unmarshal(raw, &r) != nil {
			return
		}
		l, err := newLayout(&r)
		if err != nil {
			return
		}
		if n := len(l.addrs); n == 0 || n > maxAddrs {
			t.Fatalf("%d addresses", n)
		}
		for _, a := range l.addrs {
			if !a.addr.IsValid() || a.addr.Is4In6() || a.addr.Zone() != "" || a.addr.IsUnspecified() || a.addr.IsLoopback() {
				t.Errorf("address %s", a.addr)
			}
			if a.gateway.Is4() != a.addr.Is4() || a.gateway == a.addr {
				t.Errorf("gateway %s of %s", a.gateway, a.addr)
			}
			if d := hostRoute(a.addr).Dst; !d.IsSingleIP() {
				t.Errorf("route of the node: %s", d)
			}
		}
		for _, route := range l.routes {
			if !route.Dst.IsValid() || route.Gateway.IsValid() && route.Gateway.Is4() != route.Dst.Addr().Is4() {
				t.Errorf("route %+v", route)
			}
		}
		for _, route := range l.told() {
			if _, err := json.Marshal(toResult(route)); err != nil {
				t.Errorf("route %+v cannot be told: %v", route, err)
			}
		}
	})
}
