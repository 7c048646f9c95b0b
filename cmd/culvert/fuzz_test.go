// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/maps"
)

// told is what an error has to be, whatever the input: a code and a text, and no panic
// that was caught.
func told(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if e := coded(err); e.Code == 0 || e.Msg == "" || strings.Contains(e.Msg, "has a bug") {
		t.Errorf("error without a code or text: %v", err)
	}
}

// FuzzParse: whatever comes in, there is a configuration or an error with a code.
func FuzzParse(f *testing.F) {
	f.Add([]byte(config(``)), "")
	f.Add([]byte(config(`"runtimeConfig":{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"udp","HostIP":"::"}],"bandwidth":{"ingressRate":1000,"ingressBurst":4294967295},"mac":"02:00:00:00:00:01","ips":["10.0.0.1"]}`)), "IP=10.0.0.1;MAC=x")
	f.Add([]byte(config(`"prevResult":{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/32"}},"args":{"cni":{"mac":5}}`)), ";;=;a==b")
	f.Add([]byte(config(`"nonMasqueradeCIDRs":["10.0.0.0/8"],"hostPorts":{"excludeCIDRs":["fd00::/8"],"loopback":false},"uplinks":["up0"],"mtu":1400,"dns":{"nameservers":["::1"]}`)), "")
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		c, err := parse(stdin, args)
		told(t, err)
		if err == nil && c == nil {
			t.Error("neither configuration nor error")
		}
		_, err = parseForDelete(stdin)
		told(t, err)
	})
}

// FuzzPrevResult: a result of a version that somebody claims it has. What is taken can be
// told again, in every version of the newer kind.
func FuzzPrevResult(f *testing.F) {
	f.Add("1.1.0", []byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"cv0","mac":"02:00:00:00:00:01"},{"name":"eth0","sandbox":"/run/netns/a","mtu":1500}],"ips":[{"interface":1,"address":"10.0.0.1/32","gateway":"10.0.0.9"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.9","table":100}],"dns":{}}`))
	f.Add("0.4.0", []byte(`{"ips":[{"version":"6","address":"fd00::1/128"}],"routes":[{"dst":"::/0"}]}`))
	f.Add("0.2.0", []byte(`{"cniVersion":"0.1.0","ip4":{"ip":"10.0.0.1/32","routes":[{"dst":"0.0.0.0/0"}]}}`))
	f.Add("1.1.0", []byte(`{"ips":[null],"interfaces":[null],"routes":[null]}`))
	f.Fuzz(func(t *testing.T, version string, raw []byte) {
		stdin, err := json.Marshal(map[string]any{"cniVersion": version, "prevResult": json.RawMessage(raw)})
		if err != nil {
			t.Skip("no JSON")
		}
		top, err := netconf.Decode("", stdin)
		if err != nil {
			t.Fatal(err)
		}
		c := &conf{cniVersion: version}
		if err := c.parsePrevResult(top); err != nil {
			told(t, err)
			return
		}
		if c.prevResult == nil {
			return // null
		}
		for _, ip := range c.prevResult.IPs {
			if ip == nil {
				t.Fatal("an address that is none")
			}
		}
		for _, i := range c.prevResult.Interfaces {
			if i == nil {
				t.Fatal("an interface that is none")
			}
		}
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			if _, err := c.prevResult.GetAsVersion(version); err != nil {
				t.Errorf("as %s: %v", version, err)
			}
		}
	})
}

// FuzzAttachments: GC's list is one, or none, or an error; nothing is valid that nobody
// named.
func FuzzAttachments(f *testing.F) {
	f.Add([]byte(`{"cni.dev/attachments":[{"containerID":"a","ifname":"b"}]}`))
	f.Add([]byte(`{"cni.dev/valid-attachments":[],"cni.dev/attachments":null}`))
	f.Add([]byte(`{"cni.dev/attachments":[{"containerID":5}]}`))
	f.Add([]byte(`{"CNI.DEV/attachments":[null,{}]}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		top, err := netconf.Decode("", stdin)
		if err != nil {
			return
		}
		var c conf
		if err := c.parseAttachments(top); err != nil {
			told(t, err)
			return
		}
		if given := top.Has(attachmentKeys[0]) || top.Has(attachmentKeys[1]); given != (c.attachments != nil) {
			t.Errorf("a list is given: %v, got %v", given, c.attachments)
		}
		for _, a := range c.attachments {
			if a.Container == "" || a.IfName == "" {
				t.Errorf("half an attachment: %+v", a)
			}
		}
	})
}

// FuzzNames: what passes is safe in a path, fits the rows, and makes a device's name.
func FuzzNames(f *testing.F) {
	f.Add("net", "0123abc", "eth0")
	f.Add("../net", "a/b", "eth%d")
	f.Add("a..b", ".", "..")
	f.Fuzz(func(t *testing.T, network, container, ifname string) {
		err := netconf.CheckNames(network, container, ifname)
		if err != nil {
			if e := coded(err); e.Code != types.ErrInvalidNetworkConfig && e.Code != types.ErrInvalidEnvironmentVariables {
				t.Errorf("code %d: %v", e.Code, err)
			}
			return
		}
		for _, name := range []string{network, container, ifname} {
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00 \n%") {
				t.Errorf("%q passes", name)
			}
		}
		if len(network) > netconf.MaxNetwork || len(container) > netconf.MaxContainer || len(ifname) > 15 {
			t.Errorf("%q, %q or %q does not fit", network, container, ifname)
		}
		if host := podnet.HostName(maps.Owner{Network: network, Container: container, IfName: ifname}); !podnet.IsHostName(host) {
			t.Errorf("host side is called %q", host)
		}
	})
}
