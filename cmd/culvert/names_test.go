// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/ipam"
	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// S3 (CVE-2021-20206): no name that comes from outside can lead a path elsewhere. The
// script names.txtar tries the same on the built plugin.
func TestS3CVE202120206(t *testing.T) {
	good := struct{ network, container, ifname string }{"net", "0123abc", "eth0"}
	bad := []string{
		"", ".", "..", "../x", "a/../b", "/", "/etc/passwd", "a/b", "a\x00b", "\x00", "a b", "a\n", "%", " ",
		strings.Repeat("n", 4096),
	}
	// What a device may be called is not what a container may be called.
	ifnames := append([]string{"eth%d", "%s", "a:b", "sixteen-letters-"}, bad...)
	others := append([]string{"-x", ".x", "a%d", "ä"}, bad...)
	try := func(network, container, ifname string) *types.Error {
		err := netconf.CheckNames(network, container, ifname)
		if err == nil {
			return nil
		}
		return coded(err)
	}
	if err := try(good.network, good.container, good.ifname); err != nil {
		t.Errorf("good names: %v", err)
	}
	for _, s := range others {
		if e := try(s, good.container, good.ifname); e == nil || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Details, "name: ") {
			t.Errorf("network %q: %v", s, e)
		}
		if e := try(good.network, s, good.ifname); e == nil || e.Code != types.ErrInvalidEnvironmentVariables || !strings.Contains(e.Msg, "CNI_CONTAINERID") {
			t.Errorf("container %q: %v", s, e)
		}
	}
	for _, s := range ifnames {
		if e := try(good.network, good.container, s); e == nil || e.Code != types.ErrInvalidEnvironmentVariables || !strings.Contains(e.Msg, "CNI_IFNAME") {
			t.Errorf("interface %q: %v", s, e)
		}
	}
	for _, s := range []string{strings.Repeat("n", 63), "a..b", "a_b-c.d"} {
		if e := try(s, strings.Repeat("c", 127), "fifteen-letters"); e != nil {
			t.Errorf("network %q: %v", s, e)
		}
	}
}

// S3 (CVE-2021-20206): the type of the IPAM plugin is a name in CNI_PATH, for every verb,
// and nothing is executed to find out that it is not.
func TestS3CVE202120206IPAMType(t *testing.T) {
	for _, kind := range []string{"../host-local", "/bin/sh", "a/b", "./x", "..", ".", `a\u0000b`, "culvert"} {
		stdin := []byte(`{"cniVersion":"1.1.0","name":"net","type":"culvert","ipam":{"type":"` + kind + `"}}`)
		_, err := parse(stdin, "")
		if err == nil || coded(err).Code != types.ErrInvalidNetworkConfig || !strings.Contains(err.Error(), "ipam.type: ") {
			t.Errorf("%s: %v", kind, err)
		}
		top, c, err := parseBasics(stdin)
		if err == nil {
			err = c.parseIPAM(top) // GC
		}
		if err == nil || c.ipamType != "" {
			t.Errorf("%s: GC would call %q", kind, c.ipamType)
		}
		if c, err := parseForDelete(stdin); err != nil || c.ipamType != "" {
			t.Errorf("%s: DEL would call %q, %v", kind, c.ipamType, err)
		}
		if kind == "culvert" {
			continue
		}
		plugin := &ipam.Plugin{Type: strings.ReplaceAll(kind, `\u0000`, "\x00"), Path: "/usr:/"}
		if _, err := plugin.Add(t.Context()); !errors.Is(err, ipam.ErrNotFound) {
			t.Errorf("%s: the second line of defence: %v", kind, err)
		}
	}
}
