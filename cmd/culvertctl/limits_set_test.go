// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestParseRate(t *testing.T) {
	for s, want := range map[string]uint64{
		"0": 0, "none": 0, "0.0M": 0, "1000": 1000, "500k": 500_000, "500K": 500_000, "20M": 20_000_000, "1G": 1_000_000_000,
		"1.5M": 1_500_000, "0.1M": 100_000, "2.5T": 2_500_000_000_000, "1P": 1_000_000_000_000_000, "1.001k": 1001, "007M": 7_000_000,
	} {
		got, err := parseRate(s)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", " ", "M", "-5M", "+5M", "5m", "5X", "5MM", "5 M", "5M ", "1e6", "0x10", "1.", ".5M", "1.2.3M", "999", "0.9k", "1000.5", "1.0001k",
		"1.1P", "18446744073709551616", "99999999999999999999999T", "1_000", "NaN", "inf", "20Mbit", "None",
	} {
		if got, err := parseRate(s); err == nil {
			t.Errorf("%q: got %d", s, got)
		}
	}
	for _, n := range []uint64{0, 1000, 999_000, 10_000_000, 1_500_000_000, 1 << 40} {
		if got, err := parseRate(bits(n)); err != nil || got > n+n/100 || got < n-n/100 {
			t.Errorf("%d is printed %s and read %d, %v", n, bits(n), got, err)
		}
	}
}

func TestSetErrors(t *testing.T) {
	pins := filepath.Join(t.TempDir(), "pins")
	for _, c := range []struct{ args, want string }{
		{"", "0 pods are named"},
		{"a b --ingress 5M", "2 pods are named"},
		{"a", "nothing to set"},
		{"a --ingress", "needs an argument"},
		{"a --ingress 5X", `--ingress "5X": not a rate`},
		{"a --ingress 5M --egress -5M", `--egress "-5M": not a rate`},
		{"a --egress 999", `--egress "999": not 0 (no limit) and below 1000 bit/s`},
		{"a --egress 2P", `--egress "2P": more than 1 Pbit/s`},
		{"a --egress 1.0001k", `--egress "1.0001k": not a whole number`},
		{"a --egress=", `--egress "": not a rate`},
		{"a --egres 5M", "see culvertctl limits set --help"},
		{"a --egress 5M", "not on a bpffs"}, // all else is right
	} {
		args := append([]string{"limits", "set", "--pin-path", pins}, strings.Fields(c.args)...)
		if out, err := run(t, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, output %q", c.args, err, out)
		}
	}
}

func TestPrivilegedFindPod(t *testing.T) {
	set := mapstest.Pin(t, filepath.Join(netns.PinPath(t), "v1", "maps"))
	addr := netip.MustParseAddr
	for i, o := range []struct {
		container, ifName string
		generation        uint64
	}{
		{"abc1", "eth0", 1}, {"abc1", "net1", 2}, {"abd", "eth0", 3}, {"abd2", "eth0", 4},
		{"crashed", "eth0", 5}, {"crashed", "eth0", 6},
	} {
		row := maps.Iface{Ifindex: i + 1, Owner: maps.Owner{Network: "net", Container: o.container, IfName: o.ifName}, Generation: o.generation}
		if err := set.Ifaces.Put(row); err != nil {
			t.Fatal(err)
		}
	}
	mac := make([]byte, 6)
	for a, p := range map[string]maps.Pod{"10.0.0.2": {Ifindex: 2, Generation: 2}, "fd00::2": {Ifindex: 2, Generation: 2}, "10.0.0.9": {Ifindex: 2, Generation: 9}} {
		p.Addr, p.MAC, p.HostMAC = addr(a), mac, mac
		if err := set.Pods.Put(p); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]any{
		"abc1/eth0": 1, "abc/net1": 2, "abd": 3, "abd2": 4, "abd/eth0": 3, "crash": 6, "10.0.0.2": 2, "fd00:0::2": 2, "::ffff:10.0.0.2": 2,
		"abc1": `"abc1" may be any of abc1/eth0, abc1/net1`, "ab/eth0": "abc1/eth0, abd/eth0, abd2/eth0",
		"x": `no pod is called "x"`, "": "no pod", "/": "no pod", "/eth0": "no pod", "abd/": "no pod", "abd/net1": "no pod",
		"10.0.0.3": "no pod has the address 10.0.0.3", "10.0.0.9": "no pod has the address 10.0.0.9", // a dead row
	} {
		got, err := findPod(set, name)
		if index, ok := want.(int); ok {
			if err != nil || got.Ifindex != index {
				t.Errorf("%q: got %d, %v, want %d", name, got.Ifindex, err, index)
			}
		} else if err == nil || !strings.Contains(err.Error(), want.(string)) {
			t.Errorf("%q: got %d, %v, want %q", name, got.Ifindex, err, want)
		}
	}
}
