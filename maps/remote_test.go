// SPDX-License-Identifier: Apache-2.0

package maps_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/culvert-cni/culvert/maps"
)

func TestPrivilegedRemotes(t *testing.T) {
	table := open(t).Remotes
	rows := map[netip.Prefix]maps.Remote{}
	for _, r := range []maps.Remote{
		{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Kind: maps.RemoteTunnel, Endpoint: v4, VNI: 1, Ifindex: 7},
		{Prefix: netip.MustParsePrefix("10.1.2.9/32"), Kind: maps.RemoteTunnel, Endpoint: v6, Local: v6.Next(), VNI: 1, Ifindex: 7},
		{Prefix: netip.MustParsePrefix("fd00:1::/64"), Kind: maps.RemoteDirect, Endpoint: v6},
		{Prefix: netip.MustParsePrefix("192.0.2.1/32"), Kind: maps.RemoteNode, Endpoint: v4},
	} {
		for range 2 { // in the place of what is there
			if err := table.Put(r); err != nil {
				t.Fatal(err)
			}
		}
		rows[r.Prefix] = r
	}
	all, err := maps.Collect(table.All())
	if err != nil || len(all) != len(rows) {
		t.Fatalf("got %v, %v", all, err)
	}
	for _, r := range all {
		if !reflect.DeepEqual(r, rows[r.Prefix]) {
			t.Errorf("got %+v, want %+v", r, rows[r.Prefix])
		}
	}
	for range 2 { // the second time there is none
		if err := table.Delete(netip.MustParsePrefix("10.1.2.0/24")); err != nil {
			t.Error(err)
		}
	}
	if all, err := maps.Collect(table.All()); err != nil || len(all) != len(rows)-1 {
		t.Errorf("after a delete: %v, %v", all, err)
	}
	if err := table.Put(maps.Remote{Prefix: netip.PrefixFrom(v4, 24), Kind: maps.RemoteDirect}); err == nil {
		t.Error("a range with host bits was written")
	}
}
