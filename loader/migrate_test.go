// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

const otherSchema = 9

// otherLayouts are tables whose fields lie elsewhere, are wider or narrower, came or went.
// The others are the same: pods, hostports, ifaces.
func otherLayouts(spec *ebpf.CollectionSpec) map[string]*ebpf.MapSpec {
	wide := func(s *btf.Struct, name string) {
		for i, m := range s.Members {
			if m.Name == name {
				s.Members[i].Type = &btf.Int{Name: "__u64", Size: 8}
			}
		}
	}
	relaid := func(t btf.Type, change func(*btf.Struct)) btf.Type {
		s := btf.Copy(t).(*btf.Struct)
		change(s)
		var fields []member
		for _, m := range s.Members {
			fields = append(fields, member{m.Name, m.Type})
		}
		laid := structOf(fields...)
		laid.Name = s.Name
		return laid
	}
	between := func(s *btf.Struct) {
		s.Members = slices.Insert(s.Members, 1, btf.Member{Name: "added", Type: u32})
	}
	reversed := func(s *btf.Struct) { slices.Reverse(s.Members) }
	out := map[string]*ebpf.MapSpec{}
	change := func(name string, key, value func(*btf.Struct)) {
		m := spec.Maps[name].Copy()
		if key != nil {
			m.Key = relaid(m.Key, key)
		}
		m.Value = relaid(m.Value, value)
		k, _ := btf.Sizeof(m.Key)
		v, _ := btf.Sizeof(m.Value)
		m.KeySize, m.ValueSize = uint32(k), uint32(v)
		out[name] = m
	}
	change(bpf.DatapathMapLimits, reversed, func(s *btf.Struct) { wide(s, "shaper"); between(s) })
	change(bpf.DatapathMapFlows, reversed, func(s *btf.Struct) { wide(s, "sport"); reversed(s) })
	change(bpf.DatapathMapHalfopen, nil, between)
	change(bpf.DatapathMapFragments, nil, reversed)
	change(bpf.DatapathMapNonmasq, nil, between)
	change(bpf.DatapathMapCounters, reversed, between)
	change(bpf.DatapathMapConfig, nil, func(s *btf.Struct) {
		s.Members = slices.Insert(s.Members, 4, btf.Member{Name: "added", Type: u32})
	})
	return out
}

// otherLayout makes of a datapath one that another schema's binary would have left: the
// same rows in tables of another layout, the same programs and links.
func otherLayout(t *testing.T, d *Datapath) {
	t.Helper()
	spec := object(t)
	for name, want := range otherLayouts(spec) {
		pin := filepath.Join(d.dirs.maps, name)
		own, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		other, err := ebpf.NewMap(want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		key, err := newConverter(want.Key, spec.Maps[name].Key)
		if err != nil {
			t.Fatal(err)
		}
		value, err := newConverter(want.Value, spec.Maps[name].Value)
		if err != nil {
			t.Fatal(err)
		}
		c := &tableCopy{name: name, old: own, new: other, key: key, value: value}
		if err := errors.Join(c.run(ebpf.UpdateAny), os.Remove(pin), other.Pin(pin)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.close()
	}
	if err := os.Rename(schemaPath(d.opts.PinPath, Schema), schemaPath(d.opts.PinPath, otherSchema)); err != nil {
		t.Fatal(err)
	}
}

// fill writes a few rows into every table.
func fill(t *testing.T, d *Datapath) {
	t.Helper()
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	config, err := d.Maps.Config.Get()
	note(err)
	config.Ports = []maps.PortRange{{First: 61000, Last: 65535}}
	config.Uplinks = []maps.UplinkAddr{{Ifindex: 2, Addr4: netip.MustParseAddr("192.0.2.1")}, {Ifindex: 3, Addr6: netip.MustParseAddr("2001:db8::1")}}
	config.NetnsCookie = 77
	note(d.Maps.Config.Put(config))
	cpus, err := ebpf.PossibleCPU()
	note(err)
	for i := range 700 {
		n, addr := uint32(i), bpf.DatapathAddr{}
		copy(addr.Ip[:], fmt.Sprintf("address %08d", i))
		note(d.Maps.Limits.Put(maps.Limit{Ifindex: i + 1, Direction: maps.Egress, Rate: uint64(i), Burst: 5, Shaper: maps.ShaperTBFFqCodel}))
		tuple := bpf.DatapathTuple{Src: addr, Sport: uint16(i), Dport: 80, Proto: 6, Side: bpf.DatapathSideSIDE_WIRE}
		flow := bpf.DatapathFlow{Dst: addr, Sport: 65535, Dport: uint16(i), Action: bpf.DatapathFlowActionFLOW_TO_WIRE, SrcGeneration: 1 << 60, SeenNs: uint64(i), State: 5, TcpSeq: n}
		mapstest.Put(t, d.dirs.maps, bpf.DatapathMapFlows, tuple, flow)
		mapstest.Put(t, d.dirs.maps, bpf.DatapathMapHalfopen, tuple, flow)
		mapstest.Put(t, d.dirs.maps, bpf.DatapathMapFragments, bpf.DatapathFragmentKey{Src: addr, Id: n}, bpf.DatapathFragment{Tuple: tuple, SeenNs: 9})
		counts := make([]bpf.DatapathCounter, cpus)
		counts[i%cpus] = bpf.DatapathCounter{Packets: uint64(i), Bytes: 1 << 40}
		mapstest.Put(t, d.dirs.maps, bpf.DatapathMapCounters, bpf.DatapathCounterKey{Ifindex: n, Hook: 2, Reason: 3}, counts)
	}
	for i := range 20 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16)
		note(d.Maps.Nonmasq.Put(maps.Cidr{Prefix: p, Networks: []string{"a", "b"}}))
	}
	note(d.Maps.Hostports.Claim(maps.Hostport{Port: 80, Proto: 6, PodPort: 80, Generation: 1}))
	note(d.Maps.Ifaces.Put(maps.Iface{Ifindex: 1001, Generation: 1}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// snapshot is every row of every table but hops, as bytes, and the ids of the tables.
func snapshot(t *testing.T, d *Datapath) (map[string][]string, map[string]ebpf.MapID) {
	t.Helper()
	all, ids := map[string][]string{}, map[string]ebpf.MapID{}
	for _, name := range tableNames {
		m, err := ebpf.LoadPinnedMap(filepath.Join(d.dirs.maps, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		ids[name], _ = info.ID()
		for r, err := range rows(m) {
			if err != nil {
				t.Fatal(err)
			}
			if name == bpf.DatapathMapConfig {
				r.values[0] = r.values[0][8:] // the build
			}
			all[name] = append(all[name], fmt.Sprintf("%x %x", r.key, r.values))
		}
		slices.Sort(all[name])
		m.Close()
	}
	return all, ids
}

// S4: tables of another layout are moved field by field, tables that look the same as they
// are, links and filters stay where they are, and nothing is left of the other directory.
func TestPrivilegedS4Migrate(t *testing.T) {
	for _, mode := range []AttachMode{AttachClsact, AttachAuto} {
		t.Run(string(mode), func(t *testing.T) {
			n := newNode(t, mode, mode != AttachClsact)
			n.do(t, func() error {
				return errors.Join(n.d.AttachUplink(n.dev), n.d.AttachHost(false, nil), n.d.AttachPod(1001))
			})
			fill(t, n.d)
			want, ids := snapshot(t, n.d)
			links := linkIDs(t, n.d)
			mark := filepath.Join("sysctls", "all_forwarding") // of package podnet
			if err := os.MkdirAll(filepath.Join(n.d.dirs.links, "..", mark), 0o700); err != nil {
				t.Fatal(err)
			}
			otherLayout(t, n.d)
			if _, err := Open(n.d.opts); !errors.Is(err, ErrOtherLayout) || !strings.Contains(err.Error(), "layout 9") {
				t.Errorf("open before: %v", err)
			}
			if s := Inspect(n.d.opts); s.Loaded || len(s.Faults) != 0 || len(s.Warnings) != 1 {
				t.Errorf("status before: %+v", s)
			}
			n.fake.Attached = 0
			var told []string
			n.d.opts.Did = func(what string) { told = append(told, what) }
			d := ensureIn(t, n, n.d.opts)
			got, now := snapshot(t, d)
			for name := range want {
				if !reflect.DeepEqual(got[name], want[name]) {
					t.Errorf("%s: %d rows, want %d as they were", name, len(got[name]), len(want[name]))
				}
				_, changed := otherLayouts(object(t))[name]
				if handedOver := now[name] == ids[name]; handedOver == changed {
					t.Errorf("%s: handed over %v, of another layout %v", name, handedOver, changed)
				}
			}
			for name, was := range links {
				if after := linkIDs(t, d)[name]; after.ID != was.ID || after.Program == was.Program {
					t.Errorf("link %s: %+v, before %+v", name, after, was)
				}
			}
			if n.fake.Attached == 0 || d.Fresh() || !d.current() {
				t.Errorf("%d filters replaced, fresh %v, current %v", n.fake.Attached, d.Fresh(), d.current())
			}
			onlyOwn(t, d)
			if !exists(filepath.Join(n.d.dirs.links, "..", mark)) {
				t.Error("a mark has gone")
			}
			if len(told) != 2 {
				t.Errorf("told %q", told)
			}
		})
	}
}

// ensureIn is Ensure in the node's namespace.
func ensureIn(t *testing.T, n *node, opts Options) (d *Datapath) {
	t.Helper()
	n.do(t, func() (err error) { d, err = Ensure(opts); return err })
	t.Cleanup(func() { d.Close() })
	return d
}

func onlyOwn(t *testing.T, d *Datapath) {
	t.Helper()
	entries, err := os.ReadDir(d.opts.PinPath)
	if err != nil || len(entries) != 1 {
		t.Errorf("under the pinPath: %v, %v", entries, err)
	}
}

// Broken off before our tables count, the rows are those of the other layout: what was
// deleted there since does not come back. After that they are ours.
func TestPrivilegedS4MigrateBrokenOff(t *testing.T) {
	n := newNode(t, AttachClsact, false)
	n.do(t, func() error { return errors.Join(n.d.AttachUplink(n.dev), n.d.AttachPod(1001)) })
	fill(t, n.d)
	want, _ := snapshot(t, n.d)
	otherLayout(t, n.d)
	opts := n.d.opts
	steps := []string{"marked", "filled", "links moved", "renamed", "mark left", "remains left"}
	if netns.Emulated() { // each is a load: the others are tried here
		steps = steps[1:4]
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			if err := prepare(opts); err != nil {
				t.Fatal(err)
			}
			m, err := newMigration(opts)
			if err != nil {
				t.Fatal(err)
			}
			breakOff(t, m, step)
			m.close()
			d := ensureIn(t, n, opts)
			if got, _ := snapshot(t, d); !reflect.DeepEqual(got, want) {
				t.Error("rows are not as they were")
			}
			list, err := attachments(d.dirs)
			if err != nil || len(list) != 2 || !d.current() {
				t.Errorf("attached %v (%v), current %v", list, err, d.current())
			}
			onlyOwn(t, d)
			otherLayout(t, d)
		})
	}
}

// breakOff goes as far as a step.
func breakOff(t *testing.T, m *migration, step string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if step == "marked" {
		return
	}
	spec := object(t)
	check(m.handOver(spec))
	set := mapstest.Pin(t, m.own.maps)
	check(m.open(spec))
	check(m.copy())
	if step == "filled" {
		// A row that the other layout has not, as after a DEL meanwhile.
		check(set.Limits.Put(maps.Limit{Ifindex: 7777, Direction: maps.Ingress, Rate: 1, Burst: 1}))
		return
	}
	check(m.moveMarks())
	if step == "links moved" {
		return
	}
	check(m.commit())
	if step == "renamed" {
		return
	}
	if step == "mark left" {
		for _, path := range m.gone {
			check(os.RemoveAll(path))
		}
		return
	}
	check(removePin(fillingMark(m.opts.PinPath)))
}

// What is in both directories is there once after a move, in subdirectories too.
func TestMoveEntries(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, path := range []string{from + "/pods/2_up0", from + "/pods/3_up1", from + "/other/2_up0", from + "/mark", to + "/pods/2_up0", to + "/mark"} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := moveEntries(from, to); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"pods/2_up0", "pods/3_up1", "other/2_up0", "mark"} {
		if !exists(filepath.Join(to, path)) {
			t.Errorf("%s did not come over", path)
		}
	}
	if left, err := os.ReadDir(from); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The other layout's tables count still, and somebody began to leave ours: back.
func TestPrivilegedS4MigrateBack(t *testing.T) {
	n := newNode(t, AttachClsact, false)
	n.do(t, func() error { return n.d.AttachUplink(n.dev) })
	fill(t, n.d)
	want, _ := snapshot(t, n.d)
	other := layout{schema: otherSchema, path: schemaPath(n.d.opts.PinPath, otherSchema)}
	mapstest.Pin(t, other.dirs().maps)
	row := maps.Limit{Ifindex: 7777, Direction: maps.Ingress, Rate: 1, Burst: 1}
	set, err := maps.Open(other.dirs().maps)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	moved := linkName(uplinkHooks()[0], n.dev) + "_clsact"
	if err := errors.Join(
		set.Limits.Put(row),
		os.Mkdir(other.path+fillingSuffix, 0o700), os.MkdirAll(other.dirs().links, 0o700),
		os.Rename(filepath.Join(n.d.dirs.links, moved), filepath.Join(other.dirs().links, moved)),
	); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(n.d.opts); err != nil {
		t.Errorf("open of what counts: %v", err)
	} else {
		d.Close()
	}
	before := pinned(t, n.d)
	d := ensureIn(t, n, n.d.opts)
	if got, _ := snapshot(t, d); !reflect.DeepEqual(got, want) {
		t.Error("rows are not as they were")
	}
	if list, err := attachments(d.dirs); err != nil || len(list) != 2 {
		t.Errorf("attached %v, %v", list, err)
	}
	if same(before, pinned(t, d)) {
		t.Error("programs that others may have replaced were not replaced again")
	}
	onlyOwn(t, d)
}

// Rows that other binaries write, change and delete while programs are replaced come over,
// and from then on they cannot.
func TestPrivilegedS4MigrateMeanwhile(t *testing.T) {
	n := newNode(t, AttachClsact, false)
	fill(t, n.d)
	otherLayout(t, n.d)
	opts := n.d.opts
	if err := prepare(opts); err != nil {
		t.Fatal(err)
	}
	m, err := newMigration(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	spec := object(t)
	if err := m.handOver(spec); err != nil {
		t.Fatal(err)
	}
	set := mapstest.Pin(t, m.own.maps)
	if err := m.open(spec); err != nil {
		t.Fatal(err)
	}
	if err := m.copy(); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.copies, func(c *tableCopy) bool { return c.name == bpf.DatapathMapLimits })
	c := m.copies[i]
	want := otherLayouts(spec)[c.name]
	back, err := newConverter(want.Value, spec.Maps[c.name].Value)
	if err != nil {
		t.Fatal(err)
	}
	n1 := 0
	var keys [][]byte
	for r, err := range rows(c.old) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, r.key)
		n1++
	}
	changed := c.value.convert(mustLookup(t, c.old, keys[0]))
	changed[0] ^= 0xff
	if err := errors.Join(c.old.Put(keys[0], back.convert(changed)), c.old.Delete(keys[1])); err != nil {
		t.Fatal(err)
	}
	if err := m.commit(); err != nil {
		t.Fatal(err)
	}
	if got := mustLookup(t, c.new, c.key.convert(keys[0])); !reflect.DeepEqual(got, changed) {
		t.Errorf("changed row: %x, want %x", got, changed)
	}
	if _, err := c.new.LookupBytes(c.key.convert(keys[1])); err != nil {
		t.Error(err)
	} else if b, _ := c.new.LookupBytes(c.key.convert(keys[1])); b != nil {
		t.Error("a deleted row is there")
	}
	if list, err := maps.Collect(set.Limits.All()); err != nil || len(list) != n1-1 {
		t.Errorf("%d rows (%v), want %d", len(list), err, n1-1)
	}
	if err := c.old.Put(keys[1], back.convert(changed)); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a late row of another binary: %v", err)
	}
}

func mustLookup(t *testing.T, m *ebpf.Map, key []byte) []byte {
	t.Helper()
	b, err := m.LookupBytes(key)
	if err != nil || b == nil {
		t.Fatalf("look up %x: %v", key, err)
	}
	return b
}
