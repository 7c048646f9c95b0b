// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// spoilt is what is wrong with a pod, and what CHECK says of it; "": it does not mind.
type spoilt struct {
	name string
	do   func(t *testing.T, p *netns.Pod)
	want string
}

// inPod and onNode run lines of ip(8); HOST and POD are the ends of the veth, V4 and V6
// the pod's addresses.
func inPod(lines ...string) func(*testing.T, *netns.Pod) {
	return func(t *testing.T, p *netns.Pod) { p.IP(t, fillIn(p, lines)...) }
}

func onNode(lines ...string) func(*testing.T, *netns.Pod) {
	return func(t *testing.T, p *netns.Pod) { p.Node.IP(t, fillIn(p, lines)...) }
}

func fillIn(p *netns.Pod, lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, strings.NewReplacer("HOST", p.Host.Name, "POD", p.IfName, "V4", p.V4.String(), "V6", p.V6.String(), "NETNS", p.Path()).Replace(l))
	}
	return out
}

// dropRow deletes rows.
func dropRow(del func(set *maps.Set, p *netns.Pod, ifindex int) error) func(*testing.T, *netns.Pod) {
	return func(t *testing.T, p *netns.Pod) {
		if err := del(tables(t, p.Node), p, devices(t, p.Node.NS)[p.Host.Name].Index); err != nil {
			t.Fatal(err)
		}
	}
}

// unhook takes our programs off one direction of a device, however they are attached. Pins
// begin with the kind of device.
func unhook(kind, way string) func(*testing.T, *netns.Pod) {
	return func(t *testing.T, p *netns.Pod) {
		dev, pin := map[string]string{"pod": p.Host.Name, "uplink": "up0", "lo": "lo"}[kind], kind
		if kind != "lo" {
			pin = fmt.Sprintf("%s_%d", kind, devices(t, p.Node.NS)[dev].Index)
		}
		pin += map[string]string{"ingress": "_in", "egress": "_out"}[way]
		_ = os.Remove(p.Node.PinPath + "/v1/links/" + pin) // the last reference to a link of tcx
		if out, _ := p.Node.Run("", "tc", "filter", "show", "dev", dev, way); strings.Contains(out, "bpf") {
			p.Node.MustRun(t, "", "tc", "filter", "del", "dev", dev, way)
		}
	}
}

func deletePort(proto uint8) func(*testing.T, *netns.Pod) {
	return dropRow(func(s *maps.Set, _ *netns.Pod, _ int) error {
		return s.Hostports.Delete(maps.HostportKey{Port: 8080, Proto: proto})
	})
}

var p9Missing = []spoilt{
	{"veth", onNode("link del HOST"), "check veth"},
	{"veth, another in its place", onNode("link del HOST", "link add HOST type veth peer name POD netns NETNS"), "check veth: .* has index"},
	{"pod's end, renamed", inPod("link set POD down", "link set POD name other0"), "check veth"},
	{"pod's end, down", inPod("link set POD down"), "is down"},
	{"host's end, down", onNode("link set HOST down"), "is down"},
	{"pod's MAC", inPod("link set POD address 02:00:00:00:00:09"), "MAC of POD is 02:00:00:00:00:09"},
	{"host's MAC", onNode("link set HOST address 02:00:00:00:00:09"), "MAC of HOST is 02:00:00:00:00:09"},
	{"pod's IPv4 address", inPod("addr del V4/32 dev POD"), "check addresses: V4 "},
	{"pod's IPv6 address", inPod("addr del V6/128 dev POD"), "check addresses: V6 "},
	{"pod's IPv4 route", inPod("route del default"), "check routes: the pod has no route to 0.0.0.0/0"},
	{"pod's IPv6 route", inPod("route del ::/0"), "check routes: the pod has no route to ::/0"},
	{"node's IPv4 route", onNode("route del V4"), "check routes: the node has no route to V4"},
	{"node's IPv6 route", onNode("route del V6"), "check routes: the node has no route to V6"},
	{"row of pods, IPv4", dropRow(func(s *maps.Set, p *netns.Pod, _ int) error { return s.Pods.Delete(p.V4) }), "check rows: .*V4"},
	{"row of pods, IPv6", dropRow(func(s *maps.Set, p *netns.Pod, _ int) error { return s.Pods.Delete(p.V6) }), "check rows: .*V6"},
	{"row of ifaces", dropRow(func(s *maps.Set, _ *netns.Pod, i int) error { return s.Ifaces.Delete(i) }), "check ifaces: 0 rows"},
	{"row of limits, ingress", dropRow(func(s *maps.Set, _ *netns.Pod, i int) error { return s.Limits.Delete(i, maps.Ingress) }), "check limits: .*ingress"},
	{"row of limits, egress", dropRow(func(s *maps.Set, _ *netns.Pod, i int) error { return s.Limits.Delete(i, maps.Egress) }), "check limits: .*egress"},
	{"row of hostports, TCP", deletePort(6), `check hostports: .*\*:8080/tcp`},
	{"row of hostports, UDP", deletePort(17), `check hostports: .*\*:8080/udp`},
	{"rows of nonmasq", dropRow(func(s *maps.Set, p *netns.Pod, _ int) error {
		return errors.Join(s.Nonmasq.Delete(p.Node.PodRange(4)), s.Nonmasq.Delete(p.Node.PodRange(6)))
	}), "check nonmasq"},
	{"ingress bucket", func(t *testing.T, p *netns.Pod) {
		p.Node.MustRun(t, "", "tc", "qdisc", "del", "dev", p.Host.Name, "root")
	}, "check limits: ingress"},
	{"egress bucket", func(t *testing.T, p *netns.Pod) { p.MustRun(t, "", "tc", "qdisc", "del", "dev", p.IfName, "root") }, "check limits: egress"},
	{"from_pod", unhook("pod", "ingress"), "from_pod .*not attached"},
	{"to_pod", unhook("pod", "egress"), "to_pod .*not attached"},
	{"from_host on lo", unhook("lo", "egress"), "from_host .*not attached"},
	{"from_uplink", unhook("uplink", "ingress"), "from_uplink .*not attached"},
	{"to_uplink", unhook("uplink", "egress"), "to_uplink .*not attached"},
}

var p9Tolerated = []spoilt{
	{"nothing", func(*testing.T, *netns.Pod) {}, ""},
	{"more addresses", inPod("addr add 192.0.2.9/24 dev POD", "addr add fd00:9::9/64 dev POD nodad"), ""},
	{"more routes", inPod("route add 192.0.2.0/24 dev POD", "route add fd00:9::/64 dev POD"), ""},
	{"another MTU", inPod("link set POD mtu 1400"), ""},
	{"routes in a table of their own", inPod("route add default via 169.254.1.1 dev POD onlink table 100", "rule add from V4 lookup 100"), ""},
	{"promiscuous, an alias, a group", inPod("link set POD promisc on", "link set POD alias pod", "link set POD group 7"), ""},
	{"lost neighbours", inPod("neigh flush dev POD nud permanent"), ""},
	{"an address of somebody's on the host's end", onNode("addr add 192.0.2.8/32 dev HOST"), ""},
	{"sysctls of a plugin behind", func(t *testing.T, p *netns.Pod) { p.Sysctl(t, "net/ipv4/conf/eth0/log_martians", "1") }, ""},
	{"a filter of somebody's beside ours", func(t *testing.T, p *netns.Pod) {
		hook{node: p.Node, dev: p.Host.Name}.clsact(t, "before", 1)
		hook{node: p.Node, dev: p.Host.Name, egress: true}.clsact(t, "behind", 9)
	}, ""},
	{"limits that culvertctl set", func(t *testing.T, p *netns.Pod) {
		p.Node.MustRun(t, "", filepath.Join(p.Node.Bin.Dir, "culvertctl"), "--pin-path", p.Node.PinPath, "limits", "set", p.V4.String(), "--ingress", "7M", "--egress", "none")
	}, ""},
}

// ofKernel is what may differ from kernel to kernel.
var ofKernel = regexp.MustCompile(`^(from_|to_)|bucket$|filter|^nothing$|^veth`)

// P9: CHECK sees each single thing that ADD made and that is not there any more, by name,
// and bears what plugins behind us, or administrators, add.
func TestPrivilegedP9Check(t *testing.T) {
	t.Parallel()
	// A pod that says something with another MAC, or without its row, is not heard.
	c := wire(t, netns.Layout{}, "source")
	node := c.Nodes[0]
	for _, tc := range append(p9Missing, p9Tolerated...) {
		if netns.Emulated() && !ofKernel.MatchString(tc.name) {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			p := node.Add(t, netns.PodSpec{
				Name: "p9", Ports: netns.Both(8080, 80), Conf: map[string]any{"ipMasq": true},
				Bandwidth: &netns.Bandwidth{IngressRate: 1e7, EgressRate: 2e7},
			})
			defer collectAll(t, node)
			if err := p.Check(); err != nil {
				t.Fatalf("straight after ADD: %v", err)
			}
			tc.do(t, p)
			err := p.Check()
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want := fillIn(p, []string{tc.want})[0]
			if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("want %q, got %v", want, err)
			}
			if now := p.Check(); now == nil || now.Error() != err.Error() {
				t.Errorf("CHECK changed something: first %v, then %v", err, now)
			}
		})
	}
}

// collectAll is DEL and GC for what a test has spoilt.
func collectAll(t *testing.T, n *netns.Node) {
	conf := n.Conf()
	conf["cni.dev/attachments"] = []any{}
	for _, i := range rows(t, tables(t, n).Ifaces.All()) {
		env := map[string]string{"CNI_CONTAINERID": i.Container, "CNI_NETNS": "", "CNI_IFNAME": i.IfName}
		if _, err := n.Exec("DEL", env, conf); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.Exec("GC", nil, conf); err != nil {
		t.Error(err)
	}
}

// P9: CHECK of an address that the result tells and of a namespace that are another pod's.
func TestPrivilegedP9Other(t *testing.T) {
	t.Parallel()
	node := wire(t, netns.Layout{}).Nodes[0]
	a, b := node.Add(t, netns.PodSpec{Name: "a"}), node.Add(t, netns.PodSpec{Name: "b"})
	ask := func(prev netns.Result, ns *netns.NS) error {
		conf := node.Conf()
		conf["prevResult"] = prev
		_, err := node.Exec("CHECK", map[string]string{"CNI_CONTAINERID": "a", "CNI_NETNS": ns.Path(), "CNI_IFNAME": "eth0"}, conf)
		return err
	}
	if err := ask(a.Result, a.NS); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"result of another": ask(b.Result, a.NS), "namespace of another": ask(a.Result, b.NS)} {
		if netns.Code(err) != 999 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	more := a.Result // a plugin behind us made an interface with an address
	more.Interfaces = append(more.Interfaces, netns.Interface{Name: "net1", Sandbox: a.Path()})
	other := more.IPs[0]
	place := len(more.Interfaces) - 1
	other.Address, other.Interface = netip.MustParsePrefix("192.0.2.9/24"), &place
	more.IPs = append(more.IPs, other)
	if err := ask(more, a.NS); err != nil {
		t.Errorf("with another plugin's interface: %v", err)
	}
}
