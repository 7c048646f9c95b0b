// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/culvert-cni/culvert/bpf"
)

// Object is the shipped object, loaded: its programs and maps. Loading takes half a
// second, so the tests share one and each begins with empty maps.
type Object struct {
	Programs map[string]*ebpf.Program
	Maps     bpf.DatapathMaps
	// Conntrack says whether the programs can ask conntrack: the kernel has it.
	Conntrack bool
	watcher   *watcher
}

// Load loads the object and what watches it. change, if not nil, may alter the
// specification, for a test that needs a small table.
func Load(change func(*ebpf.CollectionSpec)) (*Object, error) {
	spec, err := bpf.LoadDatapath()
	if err != nil {
		return nil, err
	}
	clock, err := bpf.ReadClock()
	if err != nil {
		return nil, err
	}
	err = errors.Join(spec.Variables[bpf.DatapathVarTickNs].Set(clock.Tick), spec.Variables[bpf.DatapathVarClockBaseNs].Set(clock.Base))
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[bpf.DatapathVarHaveProbeRead].Set(uint8(1)); err != nil {
		return nil, err
	}
	conntrack := haveConntrack()
	if conntrack {
		if err := spec.Variables[bpf.DatapathVarHaveConntrack].Set(uint8(1)); err != nil {
			return nil, err
		}
	}
	if change != nil {
		change(spec)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load object: %w", err)
	}
	o := &Object{Programs: coll.Programs, Conntrack: conntrack}
	if err := coll.Assign(&o.Maps); err != nil {
		return nil, fmt.Errorf("find maps: %w", err)
	}
	o.watcher, err = newWatcher()
	return o, err
}

// haveConntrack loads the module where it is one, as the loader does.
func haveConntrack() bool {
	_ = exec.Command("modprobe", "-q", "nf_conntrack").Run()
	var f *btf.Func
	cache := btf.NewCache()
	if spec, err := cache.Kernel(); err == nil && spec.TypeByName("bpf_skb_ct_lookup", &f) == nil {
		return true
	}
	spec, err := cache.Module("nf_conntrack")
	return err == nil && spec.TypeByName("bpf_skb_ct_lookup", &f) == nil
}

// Close unloads the object.
func (o *Object) Close() {
	o.watcher.close()
	o.Maps.Close()
	for _, p := range o.Programs {
		p.Close()
	}
}

// Clear empties every map.
func (o *Object) Clear(tb testing.TB) {
	tb.Helper()
	o.ClearFlows(tb)
	o.ClearDrops(tb)
	clearMaps(tb, o.Maps.Pods, o.Maps.Ifaces, o.Maps.Hostports, o.Maps.Limits, o.Maps.Nonmasq, o.Maps.Excluded, o.Maps.Remotes)
	Put(tb, o.Maps.Config, uint32(0), bpf.DatapathNodeConfig{})
}

// ClearDrops forgets what was counted.
func (o *Object) ClearDrops(tb testing.TB) {
	tb.Helper()
	clearMaps(tb, o.Maps.Counters)
}

// ClearFlows empties what the programs remember of packets.
func (o *Object) ClearFlows(tb testing.TB) {
	tb.Helper()
	clearMaps(tb, o.Maps.Flows, o.Maps.Halfopen, o.Maps.Fragments)
	for slot := range o.Maps.Hops.MaxEntries() {
		Put(tb, o.Maps.Hops, slot, make([]bpf.DatapathHop, ebpf.MustPossibleCPU()))
	}
}

func clearMaps(tb testing.TB, maps ...*ebpf.Map) {
	tb.Helper()
	for _, m := range maps {
		if err := clearMap(m); err != nil {
			tb.Fatalf("clear %v: %v", m, err)
		}
	}
}

func clearMap(m *ebpf.Map) error {
	var keys [][]byte
	var key []byte
	for {
		next := make([]byte, m.KeySize())
		var err error
		if key == nil {
			err = m.NextKey(nil, next)
		} else {
			err = m.NextKey(key, next)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return err
		}
		keys, key = append(keys, next), next
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// Put writes a row.
func Put[K, V any](tb testing.TB, m *ebpf.Map, key K, value V) {
	tb.Helper()
	if err := m.Put(key, value); err != nil {
		tb.Fatalf("write row of %v: %v", m, err)
	}
}

// Get reads a row; ok says whether there is one.
func Get[V any](tb testing.TB, m *ebpf.Map, key any) (value V, ok bool) {
	tb.Helper()
	err := m.Lookup(key, &value)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		tb.Fatalf("read row of %v: %v", m, err)
	}
	return value, err == nil
}

// Rows reads all rows.
func Rows[K comparable, V any](tb testing.TB, m *ebpf.Map) map[K]V {
	tb.Helper()
	rows := map[K]V{}
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		rows[key] = value
	}
	if err := it.Err(); err != nil {
		tb.Fatalf("read rows of %v: %v", m, err)
	}
	return rows
}

// Drops reads the counters, summed over the processors.
func (o *Object) Drops(tb testing.TB) map[bpf.DatapathCounterKey]bpf.DatapathCounter {
	tb.Helper()
	drops := map[bpf.DatapathCounterKey]bpf.DatapathCounter{}
	for key, cpus := range Rows[bpf.DatapathCounterKey, []bpf.DatapathCounter](tb, o.Maps.Counters) {
		sum := bpf.DatapathCounter{}
		for _, c := range cpus {
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
		drops[key] = sum
	}
	return drops
}
