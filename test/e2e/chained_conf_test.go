// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// P7: with nothing to do, and with much, the result is that of the plugins before, with
// whatever they put there; of another version it is told in the configuration's.
func TestPrivilegedP7Unchanged(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, netns.Layout{}, chain)
		node := c.Nodes[0]
		p := node.Add(t, netns.PodSpec{Name: "pod"})
		prev := object(t, p.Raw())
		prev["somebodysOwn"] = map[string]any{"key": []any{"value"}}
		prev["dns"] = map[string]any{"nameservers": []any{"192.0.2.53"}}
		for name, keys := range map[string]map[string]any{
			"nothing to do": {"prevResult": prev},
			"much to do":    {"prevResult": prev, "runtimeConfig": map[string]any{"portMappings": netns.Both(8080, 80), "bandwidth": chainedLimits}},
		} {
			out, err := p.AddOurs(keys)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := object(t, out); !reflect.DeepEqual(got, prev) {
				t.Errorf("%s: want\n%v, got\n%v", name, prev, got)
			}
		}
		old := object(t, p.Raw())
		old["cniVersion"] = "0.3.1"
		for _, ip := range old["ips"].([]any) {
			ip.(map[string]any)["version"] = map[bool]string{true: "6", false: "4"}[strings.Contains(fmt.Sprint(ip), "fd00")]
		}
		out, err := p.AddOurs(map[string]any{"prevResult": old})
		if err != nil {
			t.Fatalf("result of 0.3.1: %v", err)
		}
		if got := object(t, out); got["cniVersion"] != "1.1.0" || len(got["ips"].([]any)) != 2 {
			t.Errorf("result of 0.3.1: got %v", got)
		}
		// What 0.2.0 tells are addresses alone.
		out, err = p.AddOurs(map[string]any{"cniVersion": "0.2.0", "prevResult": map[string]any{
			"cniVersion": "0.2.0", "ip4": map[string]any{"ip": p.V4.String() + "/32"}, "dns": map[string]any{},
		}})
		if err != nil || object(t, out)["ip4"] == nil {
			t.Errorf("result of 0.2.0: got %s, %v", out, err)
		}
	})
}

func object(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("decode %q: %v", raw, err)
	}
	return m
}

// P7: what culvert cannot be chained behind is error 7 that says why, before anything is
// changed.
func TestPrivilegedP7Refused(t *testing.T) {
	t.Parallel()
	c := wireChained(t, netns.Layout{}, netns.AfterPtP)
	node := c.Nodes[0]
	p := node.Add(t, netns.PodSpec{Name: "pod"})
	if err := p.TryDelOurs(); err != nil {
		t.Fatal(err)
	}
	other := netns.New(t, "other")
	p.IP(t, "link add in0 type veth peer name in1")
	lacks := map[string]bool{}
	for name, how := range map[string]string{"dummy": "dummy0 type dummy", "macvlan": "mac0 link eth0 type macvlan", "ipvlan": "ipvl0 link eth0 type ipvlan"} {
		_, err := p.Run("link add "+how+"\n", "ip", "-batch", "-")
		lacks[name] = err != nil
	}
	before := traffic(t, node.NS, p.Host.Name)
	prev := func(name, sandbox string) map[string]any {
		return map[string]any{"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": name, "sandbox": sandbox}},
			"ips": []any{map[string]any{"address": "10.244.0.77/24", "interface": 0}}}
	}
	ports := map[string]any{"portMappings": netns.Both(8080, 80)}
	for name, tc := range map[string]struct {
		ifname string
		keys   map[string]any
		want   []string
	}{
		"no result":         {"eth0", map[string]any{"prevResult": nil}, []string{"ipam.type", "prevResult"}},
		"ipam too":          {"eth0", map[string]any{"ipam": map[string]any{"type": "host-local"}}, []string{"ipam.type", "leave ipam out"}},
		"dummy":             {"dummy0", map[string]any{"prevResult": prev("dummy0", p.Path())}, []string{"dummy", "veth"}},
		"macvlan":           {"mac0", map[string]any{"prevResult": prev("mac0", p.Path())}, []string{"macvlan", "veth"}},
		"ipvlan":            {"ipvl0", map[string]any{"prevResult": prev("ipvl0", p.Path())}, []string{"ipvlan", "veth"}},
		"loopback":          {"lo", map[string]any{"prevResult": prev("lo", p.Path())}, []string{"veth"}},
		"a veth inside":     {"in0", map[string]any{"prevResult": prev("in0", p.Path())}, []string{"other end", "node"}},
		"not there":         {"net7", map[string]any{"prevResult": prev("net7", p.Path())}, []string{"net7", "no such interface"}},
		"another name":      {"eth0", map[string]any{"prevResult": prev("eth1", p.Path())}, []string{"eth0", "eth1"}},
		"another sandbox":   {"eth0", map[string]any{"prevResult": prev("eth0", other.Path())}, []string{"sandbox"}},
		"no address":        {"eth0", map[string]any{"runtimeConfig": ports, "prevResult": map[string]any{"cniVersion": "1.1.0"}}, []string{"no address"}},
		"mtu":               {"eth0", map[string]any{"mtu": 1400}, []string{"mtu"}},
		"masqAll":           {"eth0", map[string]any{"masqAll": true}, []string{"masqAll"}},
		"conditionsV4":      {"eth0", map[string]any{"conditionsV4": []string{"-s", "10.0.0.1"}}, []string{"conditionsV4"}},
		"conditionsV6":      {"eth0", map[string]any{"conditionsV6": []string{"-s", "fd00::1"}}, []string{"conditionsV6"}},
		"unshapedSubnets":   {"eth0", map[string]any{"unshapedSubnets": []string{"10.0.0.0/8"}}, []string{"unshapedSubnets"}},
		"shapedSubnets":     {"eth0", map[string]any{"shapedSubnets": []string{"10.0.0.0/8"}}, []string{"shapedSubnets"}},
		"a rate that is no": {"eth0", map[string]any{"ingressRate": "fast"}, []string{"ingressRate"}},
	} {
		t.Run(name, func(t *testing.T) {
			if lacks[name] {
				t.Skip("the kernel has no such device")
			}
			conf := chainedConf(node)
			conf["prevResult"] = p.Raw()
			for k, v := range tc.keys {
				conf[k] = v
			}
			if conf["prevResult"] == nil {
				delete(conf, "prevResult")
			}
			_, err := node.Exec("ADD", map[string]string{"CNI_CONTAINERID": "refused", "CNI_NETNS": p.Path(), "CNI_IFNAME": tc.ifname}, conf)
			if netns.Code(err) != 7 {
				t.Fatalf("want error 7, got %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in it, got %v", want, err)
				}
			}
		})
	}
	if after := traffic(t, node.NS, p.Host.Name); after != before {
		t.Errorf("queues and filters: want\n%s, got\n%s", before, after)
	}
	noRows(t, p)
}

// X3: keys of portmap and bandwidth that stay in a configuration: what is without effect is
// taken, and rates hold.
func TestPrivilegedX3Replaced(t *testing.T) {
	t.Parallel()
	c := wireChained(t, netns.Layout{}, netns.AfterBridge)
	node := c.Nodes[0]
	p := node.Add(t, netns.PodSpec{Name: "pod", Ports: netns.Both(8080, 80), Conf: map[string]any{
		"snat": true, "masqAll": false, "markMasqBit": 13, "externalSetMarkChain": "KUBE-MARK-MASQ", "backend": "iptables",
		"conditionsV4": []string{}, "unshapedSubnets": []string{},
		"ingressRate": 20e6, "ingressBurst": 20e6, "egressRate": 30e6, "egressBurst": 30e6,
	}, Bandwidth: &netns.Bandwidth{IngressRate: 5e6}})
	p.Serve(t, 80)
	rates := map[string]uint64{}
	for _, l := range rows(t, tables(t, node).Limits.All()) {
		rates[l.Direction.String()] = l.Rate
	}
	if rates["ingress"] != 20e6 || rates["egress"] != 30e6 {
		t.Errorf("limits: want the configuration's, got %v", rates)
	}
	ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "pod", remote: only(c.Outside().V4)})
}
