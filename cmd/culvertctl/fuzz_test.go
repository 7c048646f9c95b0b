// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/maps"
)

// FuzzRate: a rate is none, or between the least and the most, or an error.
func FuzzRate(f *testing.F) {
	for _, s := range []string{"20M", "1.5G", "500k", "none", "0", "1000000000000001", "0.0000001P", "9999999999999999999999999T"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rate, err := parseRate(s)
		if err == nil && rate != 0 && (rate < podnet.LeastRate || rate > podnet.MostRate) {
			t.Errorf("%q is %d bit/s", s, rate)
		}
	})
}

// FuzzPodName: a name means one attachment that it is the beginning of, or is refused.
func FuzzPodName(f *testing.F) {
	f.Add("4f2a", "4f2a00", "4f2b00")
	f.Add("4f2a/eth0", "4f2a", "4f2a00")
	f.Add("/", "", "a")
	f.Fuzz(func(t *testing.T, name, one, other string) {
		var list []maps.Iface
		for i, id := range []string{one, other, one} {
			list = append(list, maps.Iface{Ifindex: i + 1, Generation: uint64(i + 1), Owner: maps.Owner{Network: "net", Container: id, IfName: "eth0"}})
		}
		found, err := findNamed(list, name)
		if err != nil {
			return
		}
		id, ifName, named := strings.Cut(name, "/")
		if id == "" || !strings.HasPrefix(found.Container, id) || named && ifName != found.IfName {
			t.Errorf("%q means %+v", name, found)
		}
	})
}

// FuzzNetworks: a file of the directory of conflists is somebody else's; whatever it holds,
// uplinks come only from a plugin that is culvert.
func FuzzNetworks(f *testing.F) {
	f.Add([]byte(`{"type":"culvert","uplinks":["eth0"]}`), "/sys/fs/bpf/culvert")
	f.Add([]byte(`{"type":"/opt/cni/bin/culvert","pinPath":"/x/","uplinks":null}`), "/x")
	f.Add([]byte(`{"type":["culvert"],"uplinks":[5]}`), "")
	f.Fuzz(func(t *testing.T, raw []byte, pinPath string) {
		if names, ok := uplinksOf(raw, pinPath); ok && (!json.Valid(raw) || !bytes.Contains(raw, []byte("culvert"))) && !bytes.Contains(raw, []byte(`\u`)) {
			t.Errorf("%q of %q", names, raw)
		}
	})
}
