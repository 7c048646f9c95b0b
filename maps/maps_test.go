// SPDX-License-Identifier: Apache-2.0

package maps_test

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

var (
	v4 = netip.MustParseAddr("10.1.2.3")
	v6 = netip.MustParseAddr("fd00::3")
)

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

func aPod(addr netip.Addr) maps.Pod {
	return maps.Pod{
		Addr: addr, Generation: 77, Ifindex: 5, Flags: maps.PodSourceCheck | maps.PodLimitEgress,
		Netns: 4026531840, MTU: 1450, MAC: mac(1), HostMAC: mac(2),
	}
}

func TestPrivilegedPods(t *testing.T) {
	pods := open(t).Pods
	for _, addr := range []netip.Addr{v4, v6} {
		if err := pods.Put(aPod(addr)); err != nil {
			t.Fatal(err)
		}
		got, err := pods.Get(addr)
		if err != nil || !reflect.DeepEqual(got, aPod(addr)) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if all, err := maps.Collect(pods.All()); err != nil || len(all) != 2 {
		t.Errorf("all: %v, %v", all, err)
	}
	live, err := pods.Generations()
	if err != nil || !live[77] || len(live) != 1 {
		t.Errorf("live generations %v, %v", live, err)
	}
	for range 2 { // the second time there is none
		if err := pods.Delete(v4); err != nil {
			t.Error(err)
		}
	}
	if _, err := pods.Get(v4); !errors.Is(err, maps.ErrNotFound) {
		t.Errorf("deleted row: %v", err)
	}
}

func TestPrivilegedPodsRefuse(t *testing.T) {
	pods := open(t).Pods
	for want, spoil := range map[string]func(*maps.Pod){
		"no address": func(p *maps.Pod) { p.Addr = netip.Addr{} },
		"generation": func(p *maps.Pod) { p.Generation = 0 },
		"mac":        func(p *maps.Pod) { p.MAC = nil },
		"host mac":   func(p *maps.Pod) { p.HostMAC = make(net.HardwareAddr, 20) },
	} {
		p := aPod(v4)
		spoil(&p)
		if err := pods.Put(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

func TestPrivilegedIfaces(t *testing.T) {
	ifaces := open(t).Ifaces
	row := maps.Iface{
		Ifindex:    9,
		Owner:      maps.Owner{Network: "net", Container: strings.Repeat("c", 127), IfName: "eth0"},
		Generation: 5, Netns: 1 << 33, NetnsPath: "/run/netns/a", HostIfName: "veth1",
		Addrs: []netip.Addr{v4, v6}, Flags: maps.PodSourceCheck, MTU: 1500,
	}
	if err := ifaces.Put(row); err != nil {
		t.Fatal(err)
	}
	if got, err := ifaces.Get(9); err != nil || !reflect.DeepEqual(got, row) {
		t.Errorf("got %+v, %v", got, err)
	}
	younger := row
	younger.Ifindex, younger.Generation = 10, 6
	if err := ifaces.Put(younger); err != nil {
		t.Fatal(err)
	}
	if got, err := ifaces.Find(row.Owner); err != nil || got.Ifindex != 10 {
		t.Errorf("found %+v, %v", got, err)
	}
	other := row.Owner
	other.IfName = "eth1"
	if _, err := ifaces.Find(other); !errors.Is(err, maps.ErrNotFound) {
		t.Errorf("find of a stranger: %v", err)
	}
	for want, spoil := range map[string]func(*maps.Iface){
		"network":        func(i *maps.Iface) { i.Network = strings.Repeat("n", 64) },
		"container":      func(i *maps.Iface) { i.Container = strings.Repeat("n", 128) },
		"interface name": func(i *maps.Iface) { i.IfName = strings.Repeat("n", 16) },
		"host interface": func(i *maps.Iface) { i.HostIfName = strings.Repeat("n", 16) },
		"netns path":     func(i *maps.Iface) { i.NetnsPath = strings.Repeat("n", 128) },
		"9 addresses":    func(i *maps.Iface) { i.Addrs = make([]netip.Addr, 9) },
	} {
		bad := row
		spoil(&bad)
		if err := ifaces.Put(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	if err := errors.Join(ifaces.Delete(9), ifaces.Delete(9), ifaces.Delete(10)); err != nil {
		t.Error(err)
	}
}

func TestPrivilegedHostports(t *testing.T) {
	hostports := open(t).Hostports
	wildcard := maps.Hostport{
		Port: 8080, Proto: 6, Pod4: v4, Pod6: v6, PodPort: 80, Generation: 7, Ifindex: 3, Loopback: true,
	}
	specific := wildcard
	specific.Addr, specific.Pod6, specific.Loopback = netip.MustParseAddr("192.0.2.1"), netip.Addr{}, false
	if any, err := hostports.Any(); err != nil || any {
		t.Errorf("any of none: %v, %v", any, err)
	}
	for _, h := range []maps.Hostport{wildcard, specific} {
		if err := hostports.Claim(h); err != nil {
			t.Fatal(err)
		}
		if err := hostports.Claim(h); !errors.Is(err, maps.ErrExists) {
			t.Errorf("second claim: %v", err)
		}
		if got, err := hostports.Get(h.Addr, h.Port, h.Proto); err != nil || got != h {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	// Both spellings of the wildcard are one key.
	if got, err := hostports.Get(netip.IPv4Unspecified(), 8080, 6); err != nil || got != wildcard {
		t.Errorf("0.0.0.0: %+v, %v", got, err)
	}
	if _, err := hostports.Get(netip.Addr{}, 8080, 17); !errors.Is(err, maps.ErrNotFound) {
		t.Errorf("other protocol: %v", err)
	}
	successor := wildcard
	successor.Generation = 8
	if err := hostports.Replace(successor); err != nil {
		t.Error(err)
	}
	if all, err := maps.Collect(hostports.All()); err != nil || len(all) != 2 {
		t.Errorf("all: %v, %v", all, err)
	}
	if err := errors.Join(hostports.Delete(wildcard.Key()), hostports.Delete(wildcard.Key())); err != nil {
		t.Error(err)
	}
	if any, err := hostports.Any(); err != nil || !any {
		t.Errorf("any of one: %v, %v", any, err)
	}
	if err := hostports.Claim(maps.Hostport{Port: 1, Proto: 6, PodPort: 1}); err == nil {
		t.Error("a row without generation was claimed")
	}
}

func TestPrivilegedLimits(t *testing.T) {
	limits := open(t).Limits
	for _, d := range []maps.Direction{maps.Ingress, maps.Egress} {
		l := maps.Limit{Ifindex: 4, Direction: d, Rate: 1e7 * uint64(d), Burst: 5e6, Shaper: maps.ShaperTBFFqCodel}
		if err := limits.Put(l); err != nil {
			t.Fatal(err)
		}
		if got, err := limits.Get(4, d); err != nil || got != l {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if err := errors.Join(limits.Delete(4, maps.Ingress), limits.Delete(4, maps.Ingress)); err != nil {
		t.Error(err)
	}
	all, err := maps.Collect(limits.All())
	if err != nil || len(all) != 1 || all[0].Direction != maps.Egress {
		t.Errorf("all: %v, %v", all, err)
	}
}

func TestPrivilegedCounters(t *testing.T) {
	dir := netns.PinPath(t)
	set := mapstest.Pin(t, dir)
	cpus := make([]bpf.DatapathCounter, ebpf.MustPossibleCPU())
	for i := range cpus {
		cpus[i] = bpf.DatapathCounter{Packets: 1, Bytes: 100}
	}
	for ifindex := range uint32(3) {
		for hook := range bpf.DatapathHook(5) {
			key := bpf.DatapathCounterKey{Ifindex: ifindex, Hook: hook + 1, Reason: 2}
			mapstest.Put(t, dir, bpf.DatapathMapCounters, &key, cpus)
		}
	}
	if err := errors.Join(set.Counters.DeleteIfindex(1), set.Counters.DeleteIfindex(1)); err != nil {
		t.Error(err)
	}
	all, err := maps.Collect(set.Counters.All())
	if err != nil || len(all) != 10 {
		t.Fatalf("%d rows, %v", len(all), err)
	}
	for _, c := range all {
		if n := uint64(len(cpus)); c.Ifindex == 1 || c.Packets != n || c.Bytes != 100*n || c.Reason.String() != "loopback" {
			t.Errorf("row %+v", c)
		}
	}
}

func TestPrivilegedCidrs(t *testing.T) {
	set := open(t)
	for _, table := range []*maps.Cidrs{set.Nonmasq, set.Excluded} {
		for prefix, networks := range map[string][]string{
			"10.0.0.0/8": {"b", "a", "b"}, "10.1.0.0/16": {"a"}, "10.1.2.3/32": {"c"}, "0.0.0.0/0": {"a"}, "fd00::/8": {"a"},
		} {
			if err := table.Put(maps.Cidr{Prefix: netip.MustParsePrefix(prefix), Networks: networks}); err != nil {
				t.Fatal(err)
			}
		}
		// Exactly this range, not the narrowest one around it.
		for prefix, want := range map[string][]string{
			"10.0.0.0/8": {"a", "b"}, "10.1.0.0/16": {"a"}, "10.1.2.3/32": {"c"}, "0.0.0.0/0": {"a"}, "fd00::/8": {"a"},
			"10.0.0.0/16": nil, "10.2.0.0/16": nil, "fd00::/16": nil, "::/0": nil,
		} {
			got, err := table.Get(netip.MustParsePrefix(prefix))
			if !slices.Equal(got.Networks, want) || (want == nil) != errors.Is(err, maps.ErrNotFound) {
				t.Errorf("%s %s: %+v, %v", table.Name(), prefix, got, err)
			}
		}
		for range 2 { // the second time there is none
			if err := table.Delete(netip.MustParsePrefix("10.1.0.0/16")); err != nil {
				t.Error(err)
			}
		}
		if all, err := maps.Collect(table.All()); err != nil || len(all) != 4 {
			t.Errorf("all: %v, %v", all, err)
		}
	}
}

func TestPrivilegedCidrsRefuse(t *testing.T) {
	table := open(t).Nonmasq
	for want, c := range map[string]maps.Cidr{
		"10.0.0.0/8: 9 networks": {Prefix: netip.MustParsePrefix("10.0.0.0/8"), Networks: strings.Split("abcdefghi", "")},
		"10.0.0.0/8: no network": {Prefix: netip.MustParsePrefix("10.0.0.0/8")},
		"10.0.0.0/8: network":    {Prefix: netip.MustParsePrefix("10.0.0.0/8"), Networks: []string{strings.Repeat("n", 64)}},
		"without a name":         {Prefix: netip.MustParsePrefix("10.0.0.0/8"), Networks: []string{""}},
		"10.0.0.1/8: not":        {Prefix: netip.MustParsePrefix("10.0.0.1/8"), Networks: []string{"a"}},
		"10.0.0.0/104: not":      {Prefix: netip.PrefixFrom(netip.MustParseAddr("::ffff:a00:0"), 104), Networks: []string{"a"}},
	} {
		if err := table.Put(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	// The table holds 1024.
	var err error
	for i := 0; err == nil && i < 2000; i++ {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		err = table.Put(maps.Cidr{Prefix: p, Networks: []string{"a"}})
	}
	if !errors.Is(err, maps.ErrFull) || !strings.Contains(err.Error(), table.Name()+" has room for 1024 rows") {
		t.Errorf("full: %v", err)
	}
	seen := map[netip.Prefix]bool{}
	for c, err := range table.All() {
		if err != nil || seen[c.Prefix] {
			t.Fatalf("%s came twice, or %v", c.Prefix, err)
		}
		seen[c.Prefix] = true
	}
	if len(seen) != 1024 {
		t.Errorf("%d rows of 1024", len(seen))
	}
}

func TestToCidr(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3/8": "10.0.0.0/8", "fd00::1/8": "fd00::/8", "::/0": "::/0",
	} {
		if got := maps.ToCidr(netip.MustParsePrefix(in)); got.String() != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	mapped := netip.PrefixFrom(netip.MustParseAddr("::ffff:10.1.2.3"), 104)
	if got := maps.ToCidr(mapped); got.String() != "10.0.0.0/8" {
		t.Errorf("%s: %s", mapped, got)
	}
}

func TestPrivilegedConfig(t *testing.T) {
	config := open(t).Config
	if got, err := config.Get(); err != nil || !reflect.DeepEqual(got, maps.NodeConfig{}) {
		t.Errorf("untouched: %+v, %v", got, err)
	}
	want := maps.NodeConfig{
		Build: bpf.Build(), Schema: 1, Features: maps.FeatureTCX | maps.FeatureSharedPorts,
		Ports:   []maps.PortRange{{First: 20000, Last: 29999}, {First: 61000, Last: 65535}},
		Uplinks: []maps.UplinkAddr{{Ifindex: 2, Addr4: v4, Addr6: v6}, {Ifindex: 5, Addr6: v6}},
	}
	if err := config.Put(want); err != nil {
		t.Fatal(err)
	}
	if got, err := config.Get(); err != nil || !reflect.DeepEqual(got, want) || got.PortCount() != 14536 {
		t.Errorf("got %+v of %d ports, %v", got, got.PortCount(), err)
	}
	for name, bad := range map[string]maps.NodeConfig{
		"17 port ranges": {Ports: slices.Repeat([]maps.PortRange{{First: 1, Last: 2}}, 17)},
		"9 uplinks":      {Uplinks: slices.Repeat([]maps.UplinkAddr{{Ifindex: 1}}, 9)},
		"no range":       {Ports: []maps.PortRange{{First: 2, Last: 1}}},
		"ifindex":        {Uplinks: []maps.UplinkAddr{{Addr4: v4}}},
	} {
		if err := config.Put(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// More rows than one batch, and buckets of several rows.
func TestPrivilegedAllReadsEveryRowOnce(t *testing.T) {
	hostports := open(t).Hostports
	const rows = 3000
	for i := range rows {
		h := maps.Hostport{Port: uint16(i + 1), Proto: 17, Pod4: v4, PodPort: 53, Generation: 1}
		if err := hostports.Claim(h); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint16]int{}
	for h, err := range hostports.All() {
		if err != nil {
			t.Fatal(err)
		}
		seen[h.Port]++
	}
	if len(seen) != rows {
		t.Errorf("%d of %d rows", len(seen), rows)
	}
	for port, n := range seen {
		if n != 1 {
			t.Errorf("port %d came %d times", port, n)
		}
	}
}

func TestPrivilegedMapsCarryBTF(t *testing.T) {
	dir := netns.PinPath(t)
	mapstest.Pin(t, dir)
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Maps {
		if name[0] == '.' || spec.Maps[name].Type == ebpf.RingBuf { // has no keys and no values
			continue
		}
		m, err := ebpf.LoadPinnedMap(dir+"/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := info.BTFID(); !ok || id == 0 {
			t.Errorf("map %s has no BTF", name)
		}
		m.Close()
	}
}

func TestPrivilegedOpenNothing(t *testing.T) {
	if _, err := maps.Open(netns.PinPath(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func open(t testing.TB) *maps.Set {
	t.Helper()
	return mapstest.Pin(t, netns.PinPath(t))
}

func BenchmarkPrivilegedOpen(b *testing.B) {
	dir := netns.PinPath(b)
	mapstest.Pin(b, dir)
	for b.Loop() {
		s, err := maps.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
