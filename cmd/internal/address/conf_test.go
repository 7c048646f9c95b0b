// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// config puts the keys of the ipam section, and others, into a configuration.
func config(ipam, top string) string {
	if top != "" {
		top = "," + top
	}
	return `{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"culvert-ipam"` + ipam + `}` + top + `}`
}

func TestParse(t *testing.T) {
	const subnet = `,"subnet":"10.1.0.0/24"`
	sets := func(c *Conf) string { return describe(c.Sets) }
	requested := func(c *Conf) string { return fmt.Sprint(c.Requested) }
	pins := func(c *Conf) string { return c.PinPath }
	for _, tt := range []struct {
		name, ipam, top, args string
		get                   func(*Conf) string
		want                  string
	}{
		{"subnet", subnet, ``, "", sets, "[10.1.0.1-10.1.0.255]"},
		{"ends", `,"subnet":"10.1.0.0/24","rangeStart":"10.1.0.5","rangeEnd":"10.1.0.9"`, ``, "", sets, "[10.1.0.5-10.1.0.9]"},
		{"ranges", `,"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"10.2.0.0/24"}],[{"subnet":"fd00::/120"}]]`, ``, "", sets,
			"[10.1.0.1-10.1.0.255, 10.2.0.1-10.2.0.255] [fd00::1-fd00::ff]"},
		{"all together", `,"subnet":"10.1.0.0/24","ranges":[[{"subnet":"fd00::/120"}]]`, `"runtimeConfig":{"ipRanges":[[{"subnet":"10.9.0.0/24"}]]}`, "", sets,
			"[10.9.0.1-10.9.0.255] [10.1.0.1-10.1.0.255] [fd00::1-fd00::ff]"},
		{"containerd's flat list", ``, `"runtimeConfig":{"IPRanges":[{"Subnet":"10.1.0.0/24","RangeStart":"","RangeEnd":"","Gateway":""},{"Subnet":"fd00::/120"},{"Subnet":"10.2.0.0/24"}]}`, "", sets,
			"[10.1.0.1-10.1.0.255, 10.2.0.1-10.2.0.255] [fd00::1-fd00::ff]"},
		{"null is absent", subnet + `,"ranges":null,"routes":null,"gateway":null`, `"runtimeConfig":null,"args":null`, "", sets, "[10.1.0.1-10.1.0.255]"},
		{"unknown keys", subnet + `,"dataDir":"/x","frobnicate":[1]`, `"args":{"cni":[]}`, "", sets, "[10.1.0.1-10.1.0.255]"},
		{"pinPath", subnet, ``, "", pins, "/sys/fs/bpf/culvert"},
		{"pinPath of the section", subnet + `,"pinPath":"/sys/fs/bpf/x/"`, `"pinPath":"/sys/fs/bpf/y"`, "", pins, "/sys/fs/bpf/x"},
		{"pinPath of another plugin", subnet, `"pinPath":"/sys/fs/bpf/y"`, "", pins, "/sys/fs/bpf/culvert"},
		{"ips of the runtime come first", subnet, `"runtimeConfig":{"IPs":["10.1.0.9"]},"args":{"cni":{"ips":["10.1.0.8"]}}`, "IP=10.1.0.7", requested, "[10.1.0.9]"},
		{"ips of args.cni come second", subnet, `"runtimeConfig":{"ips":[]},"args":{"cni":{"ips":["10.1.0.8/16"]}}`, "IP=10.1.0.7", requested, "[10.1.0.8]"},
		{"CNI_ARGS comes last", subnet, ``, "IgnoreUnknown=1;K8S_POD_NAME=a;IP=10.1.0.7", requested, "[10.1.0.7]"},
		{"a mapped address", subnet, ``, "IP=::ffff:10.1.0.7", requested, "[10.1.0.7]"},
		{"no wish", subnet, ``, "IP=;;x", requested, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse([]byte(config(tt.ipam, tt.top)), tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.get(c); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	c, err := Parse([]byte(strings.Replace(config(subnet, `"pinPath":"/sys/fs/bpf/y"`), "bridge", "culvert", 1)), "")
	if err != nil || c.PinPath != "/sys/fs/bpf/y" {
		t.Errorf("behind culvert the pins are beside its own: %v, %v", c, err)
	}
}

// Each error names the key and the value that are wrong.
func TestParseRefuses(t *testing.T) {
	const subnet = `,"subnet":"10.1.0.0/24"`
	for _, tt := range []struct{ name, ipam, top, args, key, value string }{
		{"no range", ``, ``, "", "ipam.ranges", "(none)"},
		{"subnet", `,"subnet":"10.1.0.0"`, ``, "", "ipam.subnet", `"10.1.0.0"`},
		{"host bits", `,"subnet":"10.1.0.5/24"`, ``, "", "ipam.subnet", "10.1.0.5/24"},
		{"number", `,"subnet":7`, ``, "", "ipam.subnet", "7"},
		{"gateway", subnet + `,"gateway":"10.2.0.1"`, ``, "", "ipam.gateway", "10.2.0.1"},
		{"rangeStart", subnet + `,"rangeStart":"x"`, ``, "", "ipam.rangeStart", "x"},
		{"in a list", `,"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/127"}]]`, ``, "", "ipam.ranges[1][0].subnet", "fd00::/127"},
		{"no list", `,"ranges":{}`, ``, "", "ipam.ranges", "{}"},
		{"an empty set", `,"ranges":[[]]`, ``, "", "ipam.ranges[0]", "[]"},
		{"null in a list", `,"ranges":[null]`, ``, "", "ipam.ranges[0]", "null"},
		{"two families in a set", `,"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"fd00::/120"}]]`, ``, "", "ipam.ranges", "two families"},
		{"reserved", subnet + `,"reserved":["10.1.0.9",7]`, ``, "", "ipam.reserved[1]", "7"},
		{"reserved name", subnet + `,"reserved":["x"]`, ``, "", "ipam.reserved[0]", "x"},
		{"reserved host bits", subnet + `,"reserved":["10.1.0.9/24"]`, ``, "", "ipam.reserved[0]", "10.1.0.0/24"},
		{"asked for, reserved", subnet + `,"reserved":["10.1.0.8/29"]`, ``, "IP=10.1.0.9", "IP in CNI_ARGS", "10.1.0.9: reserved"},
		{"pools", subnet + `,"pools":[]`, ``, "", "ipam.pools", "[]"},
		{"a pool", subnet + `,"pools":{"blue":7}`, ``, "", "ipam.pools.blue", "7"},
		{"a pool's range", subnet + `,"pools":{"blue":{"ranges":[[{"subnet":"z"}]]}}`, ``, "", "ipam.pools.blue.ranges[0][0].subnet", "z"},
		{"a pool of nothing", subnet + `,"pools":{"blue":{"ranges":[[{"subnet":"10.2.0.0/24","rangeEnd":"10.2.0.1"}]]}}`, ``, "", "ipam.pools.blue.ranges", "10.2.0.1-10.2.0.1"},
		{"a pool that overlaps", subnet + `,"pools":{"blue":{"ranges":[[{"subnet":"10.2.0.0/24"}],[{"subnet":"10.2.0.0/16"}]]}}`, ``, "", "ipam.pools.blue.ranges", "overlaps"},
		{"namespacePools", subnet + `,"namespacePools":{"ns":"blue"}`, ``, "", "ipam.namespacePools.ns", "blue"},
		{"a namespace's pool", subnet + `,"namespacePools":{"ns":["a",1]}`, ``, "", "ipam.namespacePools.ns[1]", "1"},
		{"an annotation", subnet, `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"culvert.dev/ippools":"[1]"}}`, "", "runtimeConfig.io.kubernetes.cri.pod-annotations.culvert.dev/ippools", "[1]"},
		{"annotations", subnet, `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":"x"}`, "", "runtimeConfig.io.kubernetes.cri.pod-annotations", "x"},
		{"overlap", `,"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.1.0.0/16"}]]`, ``, "", "ipam.ranges", "overlaps"},
		{"nothing to give", subnet + `,"rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1"`, ``, "", "ipam.ranges", "10.1.0.1-10.1.0.1"},
		{"runtime's range", subnet, `"runtimeConfig":{"ipRanges":[{"subnet":"z"}]}`, "", "runtimeConfig.ipRanges[0].subnet", "z"},
		{"route", subnet + `,"routes":[{"dst":"0.0.0.0/0"},{"gw":"10.1.0.1"}]`, ``, "", "ipam.routes[1]", "gw"},
		{"pinPath", subnet + `,"pinPath":"x"`, ``, "", "ipam.pinPath", "x"},
		{"no address", subnet, `"runtimeConfig":{"ips":["x"]}`, "", "runtimeConfig.ips[0]", "x"},
		{"elsewhere", subnet, `"args":{"cni":{"ips":["10.9.0.1"]}}`, "", "args.cni.ips[0]", "10.9.0.1"},
		{"gateway's", subnet, ``, "IP=10.1.0.1", "IP in CNI_ARGS", "10.1.0.1"},
		{"broadcast", subnet, ``, "IP=10.1.0.255", "IP in CNI_ARGS", "10.1.0.255"},
		{"ipam", ``, `"IPAM":5`, "", "ipam", "5"},
		{"nine sets", `,"ranges":[` + strings.Repeat(`[{"subnet":"10.1.0.0/24"}],`, 8) + `[{"subnet":"10.1.0.0/24"}]]`, ``, "", "ipam.ranges", "9 sets"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := config(tt.ipam, tt.top)
			if tt.name == "ipam" {
				text = `{"ipam":5}`
			}
			_, err := Parse([]byte(text), tt.args)
			var bad netconf.BadValue
			if !errors.As(err, &bad) || bad.Key != tt.key || !strings.Contains(err.Error(), tt.value) {
				t.Errorf("got %v, want one about %s: %s", err, tt.key, tt.value)
			}
		})
	}
	if _, err := Parse([]byte(`[`), ""); !errors.Is(err, ErrUndecodable) {
		t.Errorf("no JSON: %v", err)
	}
	old := strings.Replace(config(`,"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.2.0.0/24"}]]`, ``), "1.1.0", "0.2.0", 1)
	if _, err := Parse([]byte(old), ""); err == nil || !strings.Contains(err.Error(), "0.2.0") {
		t.Errorf("two of a family in CNI 0.2.0: %v", err)
	}
}

func TestParseForOthers(t *testing.T) {
	c, err := ParseForDelete([]byte(config(`,"ranges":7,"pinPath":5`, ``)))
	if err != nil || c.Network != "net" {
		t.Errorf("DEL of a broken configuration: %v, %v", c, err)
	}
	for top, want := range map[string][]Attachment{
		``:                                 nil,
		`"cni.dev/valid-attachments":[]`:   {},
		`"cni.dev/valid-attachments":null`: nil,
		`"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]`: {{"a", "eth0"}},
	} {
		c, err := ParseForGC([]byte(config(``, top)))
		if err != nil || !reflect.DeepEqual(c.Valid, want) {
			t.Errorf("%s: %+v, %v", top, c, err)
		}
	}
	if _, err := ParseForGC([]byte(config(``, `"cni.dev/valid-attachments":[{"containerID":"a"}]`))); err == nil {
		t.Error("an attachment without an interface is taken")
	}
}

func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 9.9.9.9\n; x\nnameserver 10.0.0.1\nnameserver fd00::1\nsearch a b\n\ndomain c\noptions ndots:5 edns0\nnameserver\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dns, err := readResolvConf(path)
	got := fmt.Sprintf("%v %v %s %v", dns.Nameservers, dns.Search, dns.Domain, dns.Options)
	if want := "[10.0.0.1 fd00::1] [a b] c [ndots:5 edns0]"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	var bad netconf.BadValue
	if _, err := readResolvConf(path + "x"); !errors.As(err, &bad) || bad.Key != "ipam.resolvConf" {
		t.Errorf("no such file: %v", err)
	}
}

// FuzzParse: whatever comes in, there is a configuration with something to give or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(config(`,"subnet":"10.1.0.0/24","gateway":"10.1.0.9","routes":[{"dst":"::/0"}]`, `"runtimeConfig":{"ips":["10.1.0.3"]}`)), "IP=10.1.0.5")
	f.Add([]byte(config(`,"ranges":[[{"subnet":"fd00::/64","rangeStart":"fd00::5"}],[{"Subnet":"10.0.0.0/30"}]]`, `"prevResult":{"ips":[{"address":"10.0.0.2/30"}]}`)), ";=")
	f.Add([]byte(config(pooled+`,"reserved":["10.3.0.0/25","fd02::5","::/1"]`, annotated("red, blue"))), "K8S_POD_NAMESPACE=shop")
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		c, err := Parse(stdin, args)
		if (c == nil) == (err == nil) {
			t.Errorf("configuration %v, error %v", c, err)
		}
		if err == nil {
			_, err1 := ParseForCheck(stdin)
			_, err2 := ParseForStatus(stdin)
			if err1 != nil || err2 != nil && !errors.Is(err2, ErrNoRange) {
				t.Errorf("an ADD may be and CHECK or STATUS not: %v, %v", err1, err2)
			}
		}
		if err != nil {
			return
		}
		for _, s := range c.Sets {
			if a := s.After(s.Ranges[0].Last); s.Gives(a) != (s.Size() > 0) {
				t.Errorf("%s of %d gives %s", s, s.Size(), a)
			}
		}
	})
}
