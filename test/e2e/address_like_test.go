// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// ipamConf is a configuration as a main plugin hands it on.
func ipamConf(n *netns.Node, kind, version string, section, top map[string]any) map[string]any {
	ipam := map[string]any{"type": kind, "dataDir": n.DataDir, "pinPath": n.PinPath}
	maps.Copy(ipam, section)
	conf := map[string]any{"cniVersion": version, "name": netns.Network, "type": kind, "ipam": ipam}
	maps.Copy(conf, top)
	return conf
}

// emptied is the node without an address that anybody has.
func emptied(t *testing.T, n *netns.Node) *netns.Node {
	t.Helper()
	return &netns.Node{NS: n.NS, Bin: n.Bin, PinPath: netns.NodePins(t), DataDir: filepath.Join(t.TempDir(), "ipam")}
}

func ipamEnv(id string, more ...string) map[string]string {
	env := map[string]string{"CNI_CONTAINERID": id, "CNI_IFNAME": "eth0", "CNI_NETNS": "/run/netns/none"}
	for _, pair := range more {
		k, v, _ := strings.Cut(pair, "=")
		env[k] = v
	}
	return env
}

type list = []map[string]any

// The same calls to host-local and culvert-ipam: the results of three ADDs, a DEL and an ADD
// again are the same bytes but for the order of keys. Where they differ, the row says how.
func TestPrivilegedIPAMLikeHostLocal(t *testing.T) {
	t.Parallel()
	stage := netns.Wire(t, netns.Layout{}).Nodes[0]
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	must(t, os.WriteFile(resolv, []byte("nameserver 10.0.0.53\nsearch a b\noptions ndots:5\n"), 0o600))
	v4, v6 := map[string]any{"subnet": "10.3.0.0/24"}, map[string]any{"subnet": "fd00:3::/64"}
	both := map[string]any{"ranges": []list{{v4}, {v6}}}
	small := map[string]any{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.20", "rangeEnd": "10.3.0.21"}
	for _, tt := range []struct {
		name         string
		section, top map[string]any
		args         string
		theirs, ours string // what the errors hold, "" for none
	}{
		{name: "subnet", section: v4},
		{name: "six", section: v6},
		{name: "both", section: both},
		{name: "mixed", section: map[string]any{"subnet": "10.3.0.0/24", "ranges": []list{{v6}}}},
		{name: "ends", section: map[string]any{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.14", "gateway": "10.3.0.10"}},
		{name: "two ranges of a set", section: map[string]any{"ranges": []list{{{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.10"}, {"subnet": "10.4.0.0/24"}}}}},
		{name: "gateway at the end", section: map[string]any{"subnet": "10.3.0.0/24", "gateway": "10.3.0.254"}},
		{name: "routes", section: map[string]any{"subnet": "10.3.0.0/24", "routes": list{{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.3.0.7", "mtu": 1400, "table": 7}}}},
		{name: "resolvConf", section: map[string]any{"subnet": "10.3.0.0/24", "resolvConf": resolv}},
		{name: "ipRanges", top: map[string]any{"runtimeConfig": map[string]any{"ipRanges": []list{{v4}, {v6}}}}},
		{name: "ipRanges come first", section: v6, top: map[string]any{"runtimeConfig": map[string]any{"ipRanges": []list{{v4}}}}},
		{name: "flat ipRanges", top: map[string]any{"runtimeConfig": map[string]any{"ipRanges": list{v4, v6}}}, theirs: "json"},
		{name: "full", section: small, theirs: "no IP addresses available", ours: "no address is free yet"},
		{name: "no range", theirs: "no IP ranges", ours: "ipam.ranges"},
		{name: "host bits", section: map[string]any{"subnet": "10.3.0.1/24"}, theirs: "host bits", ours: "ipam.subnet"},
		{name: "too small", section: map[string]any{"subnet": "10.3.0.0/31"}, theirs: "too small", ours: "too small"},
		{name: "start outside", section: map[string]any{"subnet": "10.3.0.0/24", "rangeStart": "10.4.0.1"}, theirs: "not in network", ours: "ipam.rangeStart"},
		{name: "end before start", section: map[string]any{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.3"}, theirs: "RangeStart", ours: "ipam.rangeEnd"},
		{name: "gateway outside", section: map[string]any{"subnet": "10.3.0.0/24", "gateway": "10.4.0.1"}, theirs: "gateway", ours: "ipam.gateway"},
		{name: "overlap", section: map[string]any{"ranges": []list{{v4}, {v4}}}, theirs: "overlap", ours: "overlaps"},
		{name: "families in a set", section: map[string]any{"ranges": []list{{v4, v6}}}, theirs: "mixed", ours: "two families"},
		{name: "no resolvConf", section: map[string]any{"subnet": "10.3.0.0/24", "resolvConf": "/nowhere"}, theirs: "no such file", ours: "ipam.resolvConf"},
		{name: "elsewhere", section: v4, args: "IP=10.9.0.1", theirs: "requested IPs", ours: "IP in CNI_ARGS"},
		{name: "the gateway's", section: v4, args: "IP=10.3.0.1", theirs: "gateway", ours: "gateway"},
	} {
		for _, version := range []string{"0.2.0", "0.4.0", "1.1.0"} {
			if version == "0.2.0" && tt.theirs != "" {
				continue
			}
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				node := emptied(t, stage)
				theirs, err1 := ipamRun(node, "host-local", version, tt.section, tt.top, tt.args)
				ours, err2 := ipamRun(node, "culvert-ipam", version, tt.section, tt.top, tt.args)
				for _, got := range []struct {
					who  string
					err  error
					want string
				}{{"host-local", err1, tt.theirs}, {"culvert-ipam", err2, tt.ours}} {
					if (got.err == nil) != (got.want == "") || got.err != nil && !strings.Contains(got.err.Error(), got.want) {
						t.Errorf("%s: error %v, want %q", got.who, got.err, got.want)
					}
				}
				if err1 == nil && err2 == nil && theirs != ours {
					t.Errorf("host-local   %s\nculvert-ipam %s", theirs, ours)
				}
			})
		}
	}
}

// ipamRun gives the results of some calls, or the first error.
func ipamRun(n *netns.Node, kind, version string, section, top map[string]any, args string) (string, error) {
	conf := ipamConf(n, kind, version, section, top)
	var results []string
	for _, step := range []struct{ verb, id string }{{"ADD", "a"}, {"ADD", "b"}, {"DEL", "a"}, {"DEL", "a"}, {"DEL", "nobody"}, {"ADD", "c"}, {"ADD", "d"}} {
		env := ipamEnv(step.id)
		if args != "" {
			env["CNI_ARGS"] = args
		}
		out, err := n.Exec(step.verb, env, conf)
		if err != nil {
			return "", err
		}
		var result map[string]any
		if step.verb == "ADD" {
			if err := json.Unmarshal(out, &result); err != nil {
				return "", err
			}
		}
		text, _ := json.Marshal(result)
		results = append(results, string(text))
	}
	return strings.Join(results, "\n"), nil
}

// What culvert-ipam does otherwise than host-local, each as docs/ipam.md lists it.
func TestPrivilegedIPAMUnlikeHostLocal(t *testing.T) {
	t.Parallel()
	stage := netns.Wire(t, netns.Layout{}).Nodes[0]
	v4 := map[string]any{"subnet": "10.3.0.0/24"}
	for _, tt := range []struct {
		name         string
		theirs, ours string
		run          func(n *netns.Node, kind string) (string, error)
	}{
		{"asked again", "duplicate allocation", "10.3.0.2/24 10.3.0.2/24", func(n *netns.Node, kind string) (string, error) {
			return adds(n, ipamConf(n, kind, "1.1.0", v4, nil), "a", "a")
		}},
		{"broadcast", "10.3.0.255/24", "no address is left", func(n *netns.Node, kind string) (string, error) {
			return adds(n, ipamConf(n, kind, "1.1.0", map[string]any{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.254", "rangeEnd": "10.3.0.255"}, nil), "a", "b")
		}},
		{"the strongest wish", "failed to allocate all requested IPs", "10.3.0.9/24", func(n *netns.Node, kind string) (string, error) {
			return adds(n, ipamConf(n, kind, "1.1.0", v4, map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.3.0.9"}}, "args": map[string]any{"cni": map[string]any{"ips": []string{"10.3.0.8"}}}}), "a")
		}},
		{"a name nobody knows in CNI_ARGS", "unknown args", "10.3.0.2/24", func(n *netns.Node, kind string) (string, error) {
			out, err := n.Exec("ADD", ipamEnv("a", "CNI_ARGS=K8S_POD_NAME=x"), ipamConf(n, kind, "1.1.0", v4, nil))
			return addressesOf(out), err
		}},
		{"GC without a list", "10.3.0.2/24 gone", "10.3.0.2/24 held", func(n *netns.Node, kind string) (string, error) {
			conf := ipamConf(n, kind, "1.1.0", v4, nil)
			out, err := adds(n, conf, "a")
			if err != nil {
				return "", err
			}
			if _, err := n.Exec("GC", nil, conf); err != nil {
				return "", err
			}
			if _, err := n.Exec("CHECK", ipamEnv("a"), conf); err != nil {
				return out + " gone", nil
			}
			return out + " held", nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := emptied(t, stage)
			for kind, want := range map[string]string{"host-local": tt.theirs, "culvert-ipam": tt.ours} {
				out, err := tt.run(node, kind)
				if got := fmt.Sprint(out, err); !strings.Contains(got, want) {
					t.Errorf("%s: %s, want %s", kind, got, want)
				}
			}
		})
	}
}

// adds gives the addresses of one ADD after another.
func adds(n *netns.Node, conf map[string]any, ids ...string) (string, error) {
	var got []string
	for _, id := range ids {
		out, err := n.Exec("ADD", ipamEnv(id), conf)
		if err != nil {
			return strings.Join(got, " "), err
		}
		got = append(got, addressesOf(out))
	}
	return strings.Join(got, " "), nil
}

func addressesOf(out []byte) string {
	var r netns.Result
	if json.Unmarshal(out, &r) != nil {
		return ""
	}
	var list []string
	for _, ip := range r.IPs {
		list = append(list, ip.Address.String())
	}
	return strings.Join(list, " ")
}
