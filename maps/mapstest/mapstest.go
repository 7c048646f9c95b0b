// SPDX-License-Identifier: Apache-2.0

// Package mapstest gives tests the tables without the programs.
package mapstest

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// Pin makes every map of the object anew and pins it in dir, which lies on a bpffs and
// is made if need be: <pinPath>/v1/maps, where a whole datapath is to be feigned. The
// caller removes dir.
func Pin(tb testing.TB, dir string) *maps.Set {
	tb.Helper()
	spec, err := bpf.LoadDatapath()
	if err != nil {
		tb.Fatalf("parse object: %v", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatalf("make directory for the maps: %v", err)
	}
	spec.Programs, spec.Variables = nil, nil
	for name, m := range spec.Maps {
		if name[0] == '.' {
			delete(spec.Maps, name)
			continue
		}
		m.Pinning = ebpf.PinByName
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir}})
	if err != nil {
		tb.Fatalf("make maps: %v", err)
	}
	coll.Close()
	set, err := maps.Open(dir)
	if err != nil {
		tb.Fatalf("open maps: %v", err)
	}
	tb.Cleanup(func() { set.Close() })
	return set
}

// Put writes a row that only the datapath writes, flows and counters: as bpf's own
// structs, a slice of one value a CPU where the map is per CPU.
func Put(tb testing.TB, dir, name string, key, value any) {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(dir+"/"+name, nil)
	if err != nil {
		tb.Fatalf("open map %s: %v", name, err)
	}
	defer m.Close()
	if err := m.Put(key, value); err != nil {
		tb.Fatalf("write row of %s: %v", name, err)
	}
}
