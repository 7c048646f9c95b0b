// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// route is a row of `ip -json route`.
type route struct {
	Dst      string           `json:"dst"`
	Gateway  string           `json:"gateway"`
	Dev      string           `json:"dev"`
	Protocol string           `json:"protocol"`
	Scope    string           `json:"scope"`
	Metric   int              `json:"metric"`
	Flags    []string         `json:"flags"`
	Metrics  []map[string]int `json:"metrics"`
}

func routes(t *testing.T, ns *netns.NS, args ...string) []route {
	t.Helper()
	var rs []route
	argv := append([]string{"ip", "-details", "-json"}, args...)
	if out := ns.MustRun(t, "", argv...); out != "" {
		if err := json.Unmarshal([]byte(out), &rs); err != nil {
			t.Fatalf("decode %v of %s: %v: %s", argv, ns.Name, err, out)
		}
	}
	return rs
}

func toward(rs []route, dst string) *route {
	for i := range rs {
		if rs[i].Dst == dst {
			return &rs[i]
		}
	}
	return nil
}

func (r *route) metric(name string) int {
	for _, m := range r.Metrics {
		if v, ok := m[name]; ok {
			return v
		}
	}
	return 0
}

// N2: the first packet after ADD passes, by /32 and /128 and an onlink default
// route, with the IPAM's gateway or with ours.
func TestPrivilegedN2UsableAtOnce(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	outside.Serve(t, 80)
	address := func(a, gw string) map[string]any {
		m := map[string]any{"address": a}
		if gw != "" {
			m["gateway"] = gw
		}
		return m
	}
	static := func(as ...map[string]any) map[string]any {
		return map[string]any{"ipam": map[string]any{"type": "static", "addresses": as}}
	}
	for i, tc := range []struct {
		name     string
		conf     map[string]any
		gw4, gw6 string
	}{
		{"HostLocal", nil, "10.244.0.1", "fd00:244::1"},
		{"NoGateway", static(address("10.244.0.50/24", ""), address("fd00:244::50/64", "")), "169.254.1.1", "fe80::1"},
		{"InSubnetGateway", static(address("10.244.0.51/24", "10.244.0.1"), address("fd00:244::51/64", "fd00:244::1")), "10.244.0.1", "fd00:244::1"},
	} {
		for _, v := range families {
			t.Run(fmt.Sprintf("%s/%d", tc.name, v), func(t *testing.T) {
				ns := netns.New(t, fmt.Sprintf("p%d%d", i, v))
				s := ns.Serve(t, 80)
				p := node.Add(t, netns.PodSpec{Name: s.Name, NS: ns, Conf: tc.conf})
				// A single datagram each way, nothing before it.
				quick := call("udp", p.Addr(v), 80)
				quick.Timeout = time.Second
				ask(t, outside.NS, quick, want{server: ns.Name})
				ask(t, ns, call("udp", outside.Addr(v), 80), want{server: outside.Name, remote: only(p.Addr(v))})
				gw := map[int]string{4: tc.gw4, 6: tc.gw6}[v]
				checkDefault(t, p, v, gw)
			})
		}
	}
}

func checkDefault(t *testing.T, p *netns.Pod, family int, gw string) {
	t.Helper()
	flag := fmt.Sprintf("-%d", family)
	d := toward(routes(t, p.NS, flag, "route", "show"), "default")
	if d == nil || d.Gateway != gw || d.Dev != p.IfName || !slices.Contains(d.Flags, "onlink") {
		t.Errorf("IPv%d default route: want via %s dev %s onlink, got %+v", family, gw, p.IfName, d)
	}
	var links []struct {
		Addrs []struct {
			Local     string `json:"local"`
			Prefix    int    `json:"prefixlen"`
			Tentative bool   `json:"tentative"`
		} `json:"addr_info"`
	}
	out := p.MustRun(t, "", "ip", "-json", flag, "addr", "show", "dev", p.IfName, "scope", "global")
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		t.Fatalf("decode addresses: %v: %s", err, out)
	}
	bits := p.Addr(family).BitLen()
	for _, l := range links {
		for _, a := range l.Addrs {
			if a.Local == p.Addr(family).String() && a.Prefix == bits && !a.Tentative {
				return
			}
		}
	}
	t.Errorf("IPv%d address: want %s/%d, got %s", family, p.Addr(family), bits, out)
}

// N2: "at once" holds on a busy machine too. While devices come and go elsewhere,
// the kernel activates a new veth's queue late, and drops what is sent before.
func TestPrivilegedN2BusyMachine(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.Serve(t, 80)
	churned := churn(t)
	pods := 20
	if netns.Emulated() { // where an ADD beside it takes seconds
		pods = 6
	}
	for i := range pods {
		ns := netns.New(t, fmt.Sprintf("p%d", i))
		ns.Serve(t, 80)
		p := node.Add(t, netns.PodSpec{Name: ns.Name, NS: ns})
		v := families[i%2]
		ask(t, ns, call("udp", node.Uplinks[0].Addr(v), 80), want{server: node.Name})
		ask(t, node.NS, call("udp", p.Addr(v), 80), want{server: ns.Name})
		p.Del(t)
	}
	if n := churned(); n == 0 {
		t.Error("no namespace came and went meanwhile")
	}
}

// churn makes namespaces with devices and lets them go until its result is
// called, which says how many it were.
func churn(t *testing.T) func() int {
	stop, count := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				count <- n
				return
			default:
			}
			ns, err := netns.TryNew("churn")
			if err != nil {
				t.Error(err)
				count <- 0
				return
			}
			_, _ = ns.Run("", "ip", "link", "add", "a", "up", "type", "veth", "peer", "name", "b", "up")
			ns.Close()
		}
	}()
	return func() int { close(stop); return <-count }
}

// N2: what the IPAM says of its routes is applied.
func TestPrivilegedN2Routes(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	p, _ := serve(t, c.Nodes[0], netns.PodSpec{Name: "p", Conf: map[string]any{"ipam": map[string]any{
		"type":      "static",
		"addresses": []any{map[string]any{"address": "10.244.0.60/24"}, map[string]any{"address": "fd00:244::60/64"}},
		"routes": []any{
			map[string]any{"dst": "10.99.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 77},
			map[string]any{"dst": "10.98.0.0/16", "table": 100},
			map[string]any{"dst": "10.97.0.0/16", "scope": 253},
			map[string]any{"dst": "fd00:99::/64", "mtu": 1300, "advmss": 1200, "priority": 77},
			map[string]any{"dst": "fd00:98::/64", "table": 100},
		},
	}}})
	for v, dst := range map[string]string{"-4": "10.99.0.0/16", "-6": "fd00:99::/64"} {
		r := toward(routes(t, p.NS, v, "route", "show"), dst)
		if r == nil || r.Metric != 77 || r.metric("mtu") != 1300 || r.metric("advmss") != 1200 {
			t.Errorf("route to %s: want metric 77, mtu 1300, advmss 1200, got %+v", dst, r)
		}
	}
	for v, dst := range map[string]string{"-4": "10.98.0.0/16", "-6": "fd00:98::/64"} {
		if r := toward(routes(t, p.NS, v, "route", "show", "table", "100"), dst); r == nil || r.Dev != "eth0" {
			t.Errorf("route to %s in table 100: want one, got %+v", dst, r)
		}
	}
	if r := toward(routes(t, p.NS, "-4", "route", "show"), "10.97.0.0/16"); r == nil || r.Scope != "link" {
		t.Errorf("route to 10.97.0.0/16: want scope link, got %+v", r)
	}
	for _, v := range families {
		ask(t, c.Outside().NS, call("tcp", p.Addr(v), 80), want{server: "p"})
	}
}

// N9: an IPv6 default route that came by router advertisement outlives the ADD
// that turns forwarding on, and is still kept up by advertisements.
func TestPrivilegedN9RouterAdvertisement(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	node.IP(t, "route del default via fd00:10::1")
	if err := advertised(t, node, outside, 1800*time.Second, true); err != nil {
		t.Fatal(err)
	}
	outside.Serve(t, 80)
	p, _ := serve(t, node, netns.PodSpec{Name: "p", Ports: netns.Both(8080, 80)})
	if d := toward(routes(t, node.NS, "-6", "route", "show"), "default"); d == nil || d.Protocol != "ra" {
		t.Errorf("default route after ADD: want the one by RA, got %+v", d)
	}
	ask(t, p.NS, call("tcp", outside.V6, 80), want{server: outside.Name})
	ask(t, outside.NS, call("tcp", node.Uplinks[0].V6, 8080), want{server: "p"})
	if err := advertised(t, node, outside, 0, false); err != nil {
		t.Errorf("after ADD: %v", err)
	}
	if err := advertised(t, node, outside, 1800*time.Second, true); err != nil {
		t.Errorf("after ADD: %v", err)
	}
}

// advertised sends advertisements until the node's default route is there or gone.
func advertised(t *testing.T, n *netns.Node, p *netns.Peer, lifetime time.Duration, there bool) error {
	return netns.Poll(func() error {
		if err := p.Advertise(p.Dev, lifetime); err != nil {
			return err
		}
		d := toward(routes(t, n.NS, "-6", "route", "show", "default", "proto", "ra"), "default")
		if (d != nil) == there {
			return nil
		}
		return fmt.Errorf("route by RA with lifetime %v: want it there %v, got %+v", lifetime, there, d)
	})
}
