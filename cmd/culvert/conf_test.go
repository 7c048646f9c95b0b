// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// config puts keys beside those that every configuration has.
func config(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"1.1.0","name":"net","type":"culvert","ipam":{"type":"host-local"}` + keys + `}`
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestParse(t *testing.T) {
	port := func(addr string, port, podPort uint16, proto uint8) podnet.Hostport {
		p := podnet.Hostport{Port: port, PodPort: podPort, Proto: proto}
		if addr != "" {
			p.Addr = netip.MustParseAddr(addr)
		}
		return p
	}
	for _, tt := range []struct {
		name, keys, args string
		get              func(*conf) any
		want             any
	}{
		{"defaults", ``, "", func(c *conf) any { return []any{c.pinPath, string(c.attach), c.loopback, c.mtu} },
			[]any{"/sys/fs/bpf/culvert", "auto", true, 0}},
		{"null is absent", `"mtu":null,"runtimeConfig":null,"uplinks":null`, "", func(c *conf) any { return c.mtu }, 0},
		{"unknown keys", `"frobnicate":[1],"capabilities":{"portMappings":true},"args":{"cni":[]}`, "", func(c *conf) any { return c.mtu }, 0},
		{"pinPath is cleaned", `"pinPath":"/sys/fs/bpf/x/"`, "", func(c *conf) any { return c.pinPath }, "/sys/fs/bpf/x"},
		{"containerd's spelling", `"runtimeConfig":{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"TCP","HostIP":""}]}`, "",
			func(c *conf) any { return c.hostports }, []podnet.Hostport{port("", 8080, 80, 6)}},
		{"kubelet's spelling", `"runtimeConfig":{"portMappings":[{"hostPort":53,"containerPort":5353,"protocol":"udp","hostIP":"10.0.0.1"}]}`, "",
			func(c *conf) any { return c.hostports }, []podnet.Hostport{port("10.0.0.1", 53, 5353, 17)}},
		{"every way to say all addresses is one row", `"RuntimeConfig":{"PORTMAPPINGS":[{"hostPort":1,"containerPort":2,"hostIP":"0.0.0.0"},{"hostPort":1,"containerPort":2,"hostIP":"::"},{"hostPort":1,"containerPort":2}]}`, "",
			func(c *conf) any { return c.hostports }, []podnet.Hostport{port("", 1, 2, 6)}},
		{"mapped IPv4", `"runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":1,"protocol":"Sctp","hostIP":"::ffff:10.0.0.1"}]}`, "",
			func(c *conf) any { return c.hostports }, []podnet.Hostport{port("10.0.0.1", 1, 1, 132)}},
		{"CRI-O's burst", `"runtimeConfig":{"bandwidth":{"ingressRate":1000000,"ingressBurst":17179869176}}`, "",
			func(c *conf) any { return c.ingress }, podnet.Rate{Rate: 1000000, Burst: 17179869176}},
		{"static limit wins a direction", `"bandwidth":{"ingressRate":1000},"runtimeConfig":{"bandwidth":{"IngressRate":2000,"EgressRate":3000}}`, "",
			func(c *conf) any { return []podnet.Rate{c.ingress, c.egress} }, []podnet.Rate{{Rate: 1000}, {Rate: 3000}}},
		{"mac: runtimeConfig first", `"runtimeConfig":{"mac":"02:00:00:00:00:01"},"args":{"cni":{"mac":"02:00:00:00:00:02"}}`, "MAC=02:00:00:00:00:03",
			func(c *conf) any { return c.mac.String() }, "02:00:00:00:00:01"},
		{"mac: args.cni next", `"runtimeConfig":{"mac":""},"args":{"cni":{"mac":"02:00:00:00:00:02"}}`, "MAC=02:00:00:00:00:03",
			func(c *conf) any { return c.mac.String() }, "02:00:00:00:00:02"},
		{"mac: CNI_ARGS last", ``, "IgnoreUnknown=1;MAC=02:00:00:00:00:03",
			func(c *conf) any { return c.mac.String() }, "02:00:00:00:00:03"},
		{"prefixes are masked", `"nonMasqueradeCIDRs":["10.1.2.3/8","fd00::1/8"]`, "",
			func(c *conf) any { return c.nonMasq }, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}},
		{"without the key, host-local's ranges", `"ipam":{"type":"host-local","subnet":"10.1.0.9/16","ranges":[[{"subnet":"10.2.0.0/16"},{"subnet":"10.3.0.0/16"}],[{"subnet":"fd00::/64"}]]}`, "",
			func(c *conf) any { return c.nonMasq }, prefixes("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "fd00::/64")},
		{"without the key, static's addresses and the runtime's ranges", `"ipam":{"type":"static","addresses":[{"address":"10.88.0.7/16"}]},"runtimeConfig":{"ipRanges":[[{"subnet":"10.5.0.0/16"}]]}`, "",
			func(c *conf) any { return c.nonMasq }, prefixes("10.5.0.0/16", "10.88.0.0/16")},
		{"the runtime's ranges as containerd's library has them", `"runtimeConfig":{"IPRanges":[{"Subnet":"10.5.0.0/16"},{"Subnet":"fd00::/64"}]}`, "",
			func(c *conf) any { return c.nonMasq }, prefixes("10.5.0.0/16", "fd00::/64")},
		{"without the key, culvert-ipam's pools too", `"ipam":{"type":"culvert-ipam","subnet":"10.1.0.0/16","Pools":{"blue":{"ranges":[[{"subnet":"10.7.0.0/24"}],{"Subnet":"fd00:7::/64"}]},"none":{},"odd":5}}`, "",
			func(c *conf) any { return c.nonMasq }, prefixes("10.1.0.0/16", "10.7.0.0/24", "fd00:7::/64")},
		{"ranges that nobody can read are the IPAM plugin's to refuse", `"ipam":{"type":"host-local","subnet":5,"ranges":[[{"subnet":"x"}],[{"subnet":"10.2.0.0/16"}]],"addresses":"y"}`, "",
			func(c *conf) any { return c.nonMasq }, prefixes("10.2.0.0/16")},
		{"an empty list is not the default", `"nonMasqueradeCIDRs":[],"ipam":{"type":"host-local","subnet":"10.1.0.0/16"}`, "",
			func(c *conf) any { return len(c.nonMasq) }, 0},
		{"dns of runtimeConfig over dns", `"dns":{"nameservers":["1.1.1.1"],"domain":"a"},"runtimeConfig":{"dns":{"Servers":["2.2.2.2"],"Searches":["b"]}}`, "",
			func(c *conf) any { return c.dns }, types.DNS{Nameservers: []string{"2.2.2.2"}, Domain: "a", Search: []string{"b"}}},
		{"prevResult without a version", `"prevResult":{"ips":[{"address":"10.0.0.1/32"}]}`, "",
			func(c *conf) any { return len(c.prevResult.IPs) }, 1},
		{"prevResult of an old version", `"prevResult":{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/32"}}`, "",
			func(c *conf) any { return len(c.prevResult.IPs) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parse([]byte(config(tt.keys)), tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.get(c); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// The scripts hold most bad values to their messages; here are those of every kind of
// JSON.
func TestParseBadValue(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{
		{`"mtu":1.5`, "mtu: 1.5: "},
		{`"mtu":70000`, "mtu: 70000: "},
		{`"mtu":1e400`, "mtu: 1e400: "},
		{`"mtu":[]`, "mtu: []: "},
		{`"runtimeConfig":5`, "runtimeConfig: 5: not an object"},
		{`"runtimeConfig":{"portMappings":[5]}`, "runtimeConfig.portMappings[0]: 5: not an object"},
		{`"runtimeConfig":{"portMappings":[{"hostPort":"80","containerPort":80}]}`, `runtimeConfig.portMappings[0].hostPort: "80": `},
		{`"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":65536}]}`, `runtimeConfig.portMappings[0].containerPort: 65536: `},
		{`"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80,"protocol":6}]}`, `runtimeConfig.portMappings[0].protocol: 6: `},
		{`"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80,"hostIP":"fe80::1%eth0"}]}`, `hostIP: "fe80::1%eth0": `},
		{`"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80,"hostIP":"224.0.0.1"}]}`, `hostIP: "224.0.0.1": `},
		{`"runtimeConfig":{"bandwidth":[]}`, "runtimeConfig.bandwidth: []: "},
		{`"runtimeConfig":{"bandwidth":{"egressRate":999}}`, "runtimeConfig.bandwidth.egressRate: 999: "},
		{`"runtimeConfig":{"mac":"02:00:00:00:00:00:00:01"}`, "runtimeConfig.mac: 02:00"},
		{`"uplinks":"up0"`, `uplinks: "up0": `},
		{`"uplinks":["a b"]`, `uplinks: ["a b"]: `},
		{`"hostPorts":{"loopback":"no"}`, `hostPorts.loopback: "no": `},
		{`"nonMasqueradeCIDRs":[5]`, `nonMasqueradeCIDRs[0]: 5: `},
		{`"prevResult":[]`, "prevResult: []: "},
		{`"prevResult":{"cniVersion":"9.9.9"}`, `prevResult: {"cniVersion":"9.9.9"}: `},
		{`"dns":{"nameservers":5}`, `dns: {"nameservers":5}: `},
	} {
		t.Run(tt.want, func(t *testing.T) {
			_, err := parse([]byte(config(tt.keys)), "")
			var bad netconf.BadValue
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a BadValue", err)
			}
			e := coded(err)
			if e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Details, tt.want) {
				t.Errorf("got %d %q, want 7 and %q", e.Code, e.Details, tt.want)
			}
		})
	}
	for _, stdin := range []string{``, `5`, `[]`, `{`, `"x"`} {
		if _, err := parse([]byte(stdin), ""); err == nil || coded(err).Code != types.ErrDecodingFailure {
			t.Errorf("%q: got %v, want error 6", stdin, err)
		}
	}
}

func TestParseForDelete(t *testing.T) {
	for _, keys := range []string{`"mtu":-5`, `"runtimeConfig":{"portMappings":[{"hostPort":0}]}`, `"prevResult":5`, `"attach":"x"`, `"pinPath":"x"`} {
		c, err := parseForDelete([]byte(config(keys)))
		if err != nil || c.name != "net" || c.ipamType != "host-local" || c.pinPath != "/sys/fs/bpf/culvert" {
			t.Errorf("%s: got %+v, %v", keys, c, err)
		}
	}
}
