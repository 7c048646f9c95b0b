// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

const container = "0123456789abcdef"

// run gives the output of one call.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot(&out, func() time.Duration { return 100 * time.Second })
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// filled makes a pin directory in which one pod of two addresses lives, with a hostPort
// of a dead one beside its own.
func filled(t *testing.T) (pinPath string) {
	t.Helper()
	pinPath = netns.PinPath(t)
	dir := filepath.Join(pinPath, "v1", "maps")
	set := mapstest.Pin(t, dir)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	addrs := []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range addrs {
		must(set.Pods.Put(maps.Pod{
			Addr: a, Generation: 7, Ifindex: 5, Flags: maps.PodSourceCheck, MTU: 1450, MAC: mac, HostMAC: mac,
		}))
	}
	must(set.Ifaces.Put(maps.Iface{
		Ifindex: 5, Owner: maps.Owner{Network: "net", Container: container, IfName: "eth0"},
		Generation: 7, NetnsPath: "/run/netns/a", HostIfName: "veth5", Addrs: addrs, MTU: 1450,
	}))
	live := maps.Hostport{Port: 8080, Proto: 6, Pod4: addrs[0], Pod6: addrs[1], PodPort: 80, Generation: 7, Ifindex: 5}
	dead := maps.Hostport{Addr: netip.MustParseAddr("192.0.2.1"), Port: 53, Proto: 17, Pod4: addrs[0], PodPort: 53, Generation: 6, Ifindex: 5}
	must(set.Hostports.Claim(live))
	must(set.Hostports.Claim(dead))
	must(set.Limits.Put(maps.Limit{Ifindex: 5, Direction: maps.Egress, Rate: 10_000_000, Burst: 1_500_000, Shaper: maps.ShaperTBFFqCodel}))
	must(set.Limits.Put(maps.Limit{Ifindex: 5, Direction: maps.Ingress, Shaper: maps.ShaperTBF}))
	must(set.Config.Put(maps.NodeConfig{
		Build: 0xabc, Schema: 1, Features: maps.FeatureConntrack | maps.FeatureSharedPorts | maps.FeatureTBF | maps.FeatureFqCodel,
		Ports: []maps.PortRange{{First: 20000, Last: 29999}, {First: 61000, Last: 65535}},
	}))
	must(set.Nonmasq.Put(maps.Cidr{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Networks: []string{"net", "b"}}))
	must(set.Nonmasq.Put(maps.Cidr{Prefix: netip.MustParsePrefix("fd00::/8"), Networks: []string{"net"}}))
	must(set.Excluded.Put(maps.Cidr{Prefix: netip.MustParsePrefix("10.96.0.0/12"), Networks: []string{"net"}}))
	must(set.Remotes.Put(maps.Remote{Prefix: netip.MustParsePrefix("10.1.9.0/24"), Kind: maps.RemoteTunnel, Endpoint: netip.MustParseAddr("198.51.100.9"), VNI: 1, Ifindex: 1}))
	must(set.Remotes.Put(maps.Remote{Prefix: netip.MustParsePrefix("fd00:1::/64"), Kind: maps.RemoteDirect, Endpoint: netip.MustParseAddr("2001:db8::9")}))
	putFlow(t, dir, bpf.DatapathMapFlows, 40000, 7)
	putFlow(t, dir, bpf.DatapathMapHalfopen, 40001, 7)
	putFlow(t, dir, bpf.DatapathMapFlows, 40002, 6)
	putMasqueraded(t, dir)
	putAddresses(t, dir, addrs)
	return pinPath
}

// putAddresses has the pod's addresses given by culvert-ipam, and another one released.
func putAddresses(t *testing.T, dir string, addrs []netip.Addr) {
	t.Helper()
	table, err := maps.OpenAddresses(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	owner := maps.Owner{Network: "net", Container: container, IfName: "eth0"}
	gone := maps.Owner{Network: "net", Container: "gone", IfName: "eth0"}
	errs := []error{
		table.PutTenant(maps.Tenant{Owner: owner, Addrs: addrs, Netns: 7, NetnsPath: "/run/netns/a"}),
		table.Claim(maps.Lease{Addr: netip.MustParseAddr("10.1.2.10"), Owner: gone, State: maps.AddressReleased, Since: 90 * time.Second}),
	}
	for _, a := range addrs {
		errs = append(errs, table.Claim(maps.Lease{Addr: a, Owner: owner, State: maps.AddressHeld, Since: 60 * time.Second}))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func putFlow(t *testing.T, dir, table string, port uint16, generation uint64) {
	t.Helper()
	bytes := func(s string) bpf.DatapathAddr { return bpf.DatapathAddr{Ip: netip.MustParseAddr(s).As16()} }
	client, node, pod := bytes("192.0.2.9"), bytes("192.0.2.1"), bytes("10.1.2.3")
	mapstest.Put(t, dir, table,
		&bpf.DatapathTuple{Src: client, Dst: node, Sport: port, Dport: 8080, Proto: 6},
		&bpf.DatapathFlow{
			Src: client, Dst: pod, Sport: port, Dport: 80, Action: bpf.DatapathFlowActionFLOW_TO_POD,
			Flags: bpf.DatapathFlowFlagFLOW_HOSTPORT, DstGeneration: generation, SeenNs: 95e9,
		})
}

// putMasqueraded writes the two rows of a pod's flow to outside.
func putMasqueraded(t *testing.T, dir string) {
	t.Helper()
	bytes := func(s string) bpf.DatapathAddr { return bpf.DatapathAddr{Ip: netip.MustParseAddr(s).As16()} }
	pod, node, outside := bytes("10.1.2.3"), bytes("192.0.2.1"), bytes("198.51.100.1")
	const flags = bpf.DatapathFlowFlagFLOW_TRANSLATE | bpf.DatapathFlowFlagFLOW_MASQUERADE
	mapstest.Put(t, dir, bpf.DatapathMapFlows,
		&bpf.DatapathTuple{Src: pod, Dst: outside, Sport: 5000, Dport: 53, Proto: 17, Side: bpf.DatapathSideSIDE_WIRE},
		&bpf.DatapathFlow{
			Src: node, Dst: outside, Sport: 61001, Dport: 53, Action: bpf.DatapathFlowActionFLOW_TO_STACK,
			Flags: flags, SrcGeneration: 7, SeenNs: 95e9,
		})
	mapstest.Put(t, dir, bpf.DatapathMapFlows,
		&bpf.DatapathTuple{Src: outside, Dst: node, Sport: 53, Dport: 61001, Proto: 17},
		&bpf.DatapathFlow{
			Src: outside, Dst: pod, Sport: 53, Dport: 5000, Action: bpf.DatapathFlowActionFLOW_TO_STACK,
			Flags: flags | bpf.DatapathFlowFlagFLOW_REPLY, DstGeneration: 7, SeenNs: 95e9,
		})
}

func TestPrivilegedViewsAsJSON(t *testing.T) {
	pinPath := filled(t)
	flow := func(port string, half, live bool) map[string]any {
		return map[string]any{
			"proto": "tcp", "side": "fast", "src": "192.0.2.9:" + port, "dst": "192.0.2.1:8080",
			"toSrc": "192.0.2.9:" + port, "toDst": "10.1.2.3:80", "action": "to_pod",
			"flags": []any{"hostport"}, "state": []any{}, "halfOpen": half, "live": live, "ageSeconds": 5.0,
		}
	}
	reply := map[string]any{
		"proto": "udp", "side": "fast", "src": "198.51.100.1:53", "dst": "192.0.2.1:61001",
		"toSrc": "198.51.100.1:53", "toDst": "10.1.2.3:5000", "action": "to_stack",
		"flags": []any{"translate", "reply", "masquerade"}, "state": []any{}, "halfOpen": false, "live": true, "ageSeconds": 5.0,
	}
	request := map[string]any{
		"proto": "udp", "side": "wire", "src": "10.1.2.3:5000", "dst": "198.51.100.1:53",
		"toSrc": "192.0.2.1:61001", "toDst": "198.51.100.1:53", "action": "to_stack",
		"flags": []any{"translate", "masquerade"}, "state": []any{}, "halfOpen": false, "live": true, "ageSeconds": 5.0,
	}
	pod := func(addr string) map[string]any {
		return map[string]any{
			"address": addr, "container": container, "network": "net", "ifname": "eth0", "ifindex": 5.0,
			"hostIfname": "veth5", "mac": "02:00:00:00:00:01", "netns": "/run/netns/a", "mtu": 1450.0,
			"generation": 7.0, "flags": []any{"source_check"},
		}
	}
	held := func(addr string) map[string]any {
		return map[string]any{
			"address": addr, "network": "net", "container": container, "ifname": "eth0", "netns": "/run/netns/a",
			"state": "held", "ageSeconds": 40.0,
		}
	}
	released := map[string]any{
		"address": "10.1.2.10", "network": "net", "container": "gone", "ifname": "eth0", "netns": "",
		"state": "released", "ageSeconds": 10.0,
	}
	for name, want := range map[string][]any{
		"addresses":       {held("10.1.2.3"), held("fd00::3")},
		"addresses --all": {held("10.1.2.3"), released, held("fd00::3")},
		"pods":            {pod("10.1.2.3"), pod("fd00::3")},
		"hostports": {
			map[string]any{
				"hostIP": "192.0.2.1", "hostPort": 53.0, "protocol": "udp", "pod4": "10.1.2.3", "pod6": "",
				"containerPort": 53.0, "container": "", "alive": false,
			},
			map[string]any{
				"hostIP": "*", "hostPort": 8080.0, "protocol": "tcp", "pod4": "10.1.2.3", "pod6": "fd00::3",
				"containerPort": 80.0, "container": container, "alive": true,
			},
		},
		"remotes": {map[string]any{
			"range": "10.1.9.0/24", "way": "tunnel", "endpoint": "198.51.100.9", "local": "", "vni": 1.0, "ifindex": 1.0, "device": "lo",
		}, map[string]any{
			"range": "fd00:1::/64", "way": "direct", "endpoint": "2001:db8::9", "local": "", "vni": 0.0, "ifindex": 0.0, "device": "",
		}},
		"limits": {map[string]any{
			"container": container, "ifname": "eth0", "addresses": []any{"10.1.2.3", "fd00::3"}, "ifindex": 5.0,
			"direction": "ingress", "rate": 0.0, "burst": 0.0, "shaper": "",
		}, map[string]any{
			"container": container, "ifname": "eth0", "addresses": []any{"10.1.2.3", "fd00::3"}, "ifindex": 5.0,
			"direction": "egress", "rate": 1e7, "burst": 1.5e6, "shaper": "tbf_fq_codel",
		}},
		"flows":       {flow("40000", false, true), flow("40001", true, true), reply, request},
		"flows --all": {flow("40000", false, true), flow("40001", true, true), flow("40002", false, false), reply, request},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, append(strings.Fields(name), "--pin-path", pinPath, "-o", "json")...)
			if err != nil {
				t.Fatal(err)
			}
			var got []any
			if err := json.Unmarshal([]byte(out), &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, %v\nwant %v", got, err, want)
			}
		})
	}
}

func TestPrivilegedViewsAsTables(t *testing.T) {
	pinPath := filled(t)
	for name, want := range map[string]string{
		"pods": `
ADDRESS   CONTAINER      NETWORK  IFNAME  HOST   MAC                MTU   FLAGS
10.1.2.3  0123456789abc  net      eth0    veth5  02:00:00:00:00:01  1450  source_check
fd00::3   0123456789abc  net      eth0    veth5  02:00:00:00:00:01  1450  source_check
`,
		"addresses --all": `
ADDRESS    NETWORK  CONTAINER      IFNAME  STATE     SINCE
10.1.2.3   net      0123456789abc  eth0    held      40s
10.1.2.10  net      gone           eth0    released  10s
fd00::3    net      0123456789abc  eth0    held      40s
`,
		"hostports": `
HOST-IP    PORT  PROTO  POD4      POD6     POD-PORT  CONTAINER      ALIVE
192.0.2.1  53    udp    10.1.2.3  -        53        -              false
*          8080  tcp    10.1.2.3  fd00::3  80        0123456789abc  true
`,
		"remotes": `
RANGE        WAY     NODE          DEVICE
10.1.9.0/24  tunnel  198.51.100.9  lo
fd00:1::/64  direct  2001:db8::9   -
`,
		"limits --interval 0": `
CONTAINER      IFNAME  ADDRESSES         IFINDEX  DIRECTION  BIT/S  BURST-BITS  SHAPER
0123456789abc  eth0    10.1.2.3,fd00::3  5        ingress    none   -           -
0123456789abc  eth0    10.1.2.3,fd00::3  5        egress     10M    1.5M        tbf_fq_codel
`,
		"flows --all": `
PROTO  SIDE  SRC              DST              TO-SRC           TO-DST           ACTION    FLAGS                       STATE      AGE
tcp    fast  192.0.2.9:40000  192.0.2.1:8080   192.0.2.9:40000  10.1.2.3:80      to_pod    hostport                    -          5s
tcp    fast  192.0.2.9:40001  192.0.2.1:8080   192.0.2.9:40001  10.1.2.3:80      to_pod    hostport                    half-open  5s
tcp    fast  192.0.2.9:40002  192.0.2.1:8080   192.0.2.9:40002  10.1.2.3:80      to_pod    hostport                    dead       5s
udp    fast  198.51.100.1:53  192.0.2.1:61001  198.51.100.1:53  10.1.2.3:5000    to_stack  translate,reply,masquerade  -          5s
udp    wire  10.1.2.3:5000    198.51.100.1:53  192.0.2.1:61001  198.51.100.1:53  to_stack  translate,masquerade        -          5s
`,
		"status": `
kernel             ` + kernel() + `
pins               ` + pinPath + `
loaded             yes, build 0000000000000abc
conntrack          yes
fq_codel           yes
shared_ports       yes
tbf                yes
tcx                no
shaper             tbf with fq_codel
uplinks            -
masquerade ports   20000-29999, 61000-65535
nonmasq            10.0.0.0/8 (b, net)
nonmasq            fd00::/8 (net)
excluded           10.96.0.0/12 (net)
rows of counters   0
rows of excluded   1
rows of flows      4
rows of halfopen   1
rows of hostports  2
rows of ifaces     1
rows of limits     2
rows of nonmasq    2
rows of pods       2
rows of remotes    2
warning            the programs are of build 0000000000000abc, not of this one (` + fmt.Sprintf("%016x", bpf.Build()) + `): the next pod's start replaces them, or culvertctl reconcile
warning            ` + loader.SharedPorts().Error() + `
`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, append(strings.Fields(name), "--pin-path", pinPath)...)
			if err != nil || out != want[1:] {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestPrivilegedEmptyViews(t *testing.T) {
	pinPath := netns.PinPath(t)
	mapstest.Pin(t, filepath.Join(pinPath, "v1", "maps"))
	for _, name := range []string{"pods", "addresses", "hostports", "limits", "flows", "remotes"} {
		if out, err := run(t, name, "--pin-path", pinPath, "-o", "json"); err != nil || strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

func TestPrivilegedStatus(t *testing.T) {
	pinPath := netns.PinPath(t)
	status := func() (s statusView, err error) {
		out, err := run(t, "status", "--pin-path", pinPath, "-o", "json")
		if e := json.Unmarshal([]byte(out), &s); e != nil {
			t.Fatal(e)
		}
		return s, err
	}
	if s, err := status(); err != nil || s.Loaded || len(s.Faults) != 0 {
		t.Errorf("not loaded yet: %+v, %v", s, err)
	}
	mapstest.Pin(t, filepath.Join(pinPath, "v1", "maps"))
	s, err := status()
	if err == nil || !s.Loaded || len(s.Faults) != 1 || s.Faults[0].Remedy == "" || s.Counts["pods"] != 0 {
		t.Errorf("without conntrack: %+v, %v", s, err)
	}
}

func TestBits(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 999: "999", 1000: "1k", 10_000_000: "10M", 1_500_000_000: "1.5G", 100: "100", 1 << 32: "4.29G",
	} {
		if got := bits(n); got != want {
			t.Errorf("%d is printed %s, want %s", n, got, want)
		}
	}
}

func kernel() string { return loader.Inspect(loader.Options{PinPath: "/"}).Kernel }
