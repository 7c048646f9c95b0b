// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// oldTable is a table of another layout.
type oldTable struct{ *ebpf.Map }

// openTable gives nil if that layout has no such table.
func openTable(d dirs, name string) (*oldTable, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(d.maps, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open table %s of another layout: %w", name, err)
	}
	return &oldTable{m}, nil
}

// types finds key and value by the names that ours have, in what the kernel knows of the
// table.
func (t *oldTable) types(want *ebpf.MapSpec) (key, value btf.Type, err error) {
	h, err := t.Handle()
	if err != nil {
		return nil, nil, fmt.Errorf("read types: %w", err)
	}
	defer h.Close()
	spec, err := h.Spec(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("read types: %w", err)
	}
	if key, err = typeNamed(spec, want.Key.TypeName(), t.KeySize()); err == nil {
		value, err = typeNamed(spec, want.Value.TypeName(), t.ValueSize())
	}
	return key, value, err
}

// typeNamed passes over what only has the name: a type may be there twice.
func typeNamed(spec *btf.Spec, name string, size uint32) (btf.Type, error) {
	list, err := spec.AnyTypesByName(name)
	if err != nil {
		return nil, fmt.Errorf("find type %s: %w", name, err)
	}
	for _, t := range list {
		if n, err := btf.Sizeof(t); err == nil && n == int(size) {
			return t, nil
		}
	}
	return nil, fmt.Errorf("find type %s: none has %d bytes", name, size)
}

func (t *oldTable) pinIfSame(want *ebpf.MapSpec, pin string) error {
	if t.Type() != want.Type || t.KeySize() != want.KeySize || t.ValueSize() != want.ValueSize ||
		t.MaxEntries() != want.MaxEntries || t.Flags() != want.Flags {
		return nil
	}
	key, value, err := t.types(want)
	if err != nil || !sameLayout(key, want.Key) || !sameLayout(value, want.Value) {
		return err
	}
	clone, err := t.Clone() // one that knows of no pin: else that would be moved
	if err != nil {
		return err
	}
	defer clone.Close()
	return clone.Pin(pin)
}

// tableCopy copies one table.
type tableCopy struct {
	name       string
	old, new   *ebpf.Map
	key, value *converter
	follow     bool              // rows that the old one has no more go: only verbs write it
	once       bool              // copied at first alone
	seen       map[string]string // of follow: the old rows at the last run
	ran        bool
}

// openCopy gives nil where there is nothing to copy.
func openCopy(from, to dirs, name string, want *ebpf.MapSpec) (*tableCopy, error) {
	old, err := openTable(from, name)
	if err != nil || old == nil {
		return nil, err
	}
	c := &tableCopy{name: name, old: old.Map}
	if c.new, err = ebpf.LoadPinnedMap(filepath.Join(to.maps, name), nil); err != nil {
		c.close()
		return nil, err
	}
	same, err := sameMap(c.old, c.new)
	if err != nil || same {
		c.close()
		return nil, err
	}
	key, value, err := old.types(want)
	if err == nil {
		c.key, err = newConverter(want.Key, key)
	}
	if err == nil {
		c.value, err = newConverter(want.Value, value)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *tableCopy) close() {
	c.old.Close()
	if c.new != nil {
		c.new.Close()
	}
}

func sameMap(a, b *ebpf.Map) (bool, error) {
	infoA, err := a.Info()
	if err != nil {
		return false, err
	}
	infoB, err := b.Info()
	if err != nil {
		return false, err
	}
	idA, _ := infoA.ID()
	idB, _ := infoB.ID()
	return idA == idB, nil
}

// run copies rows by flags; where it follows, changed ones always.
func (c *tableCopy) run(flags ebpf.MapUpdateFlags) error {
	if c.once && c.ran {
		return nil
	}
	now, kept := map[string]string{}, map[string]bool{}
	for r, err := range rows(c.old) {
		if err != nil {
			return err
		}
		key := c.key.convert(r.key)
		if c.follow {
			raw := string(r.values[0])
			now[string(r.key)], kept[string(key)] = raw, true
			if before, ok := c.seen[string(r.key)]; ok && before == raw {
				continue
			}
			flags = ebpf.UpdateAny
		}
		if c.once {
			flags = ebpf.UpdateAny
		}
		if err := c.put(key, r.values, flags); err != nil {
			return err
		}
	}
	if c.follow {
		if err := c.drop(kept, now); err != nil {
			return err
		}
	}
	c.seen, c.ran = now, true
	return nil
}

func (c *tableCopy) put(key []byte, values [][]byte, flags ebpf.MapUpdateFlags) error {
	var value any = c.value.convert(values[0])
	if perCPU(c.new) {
		list := reflect.MakeSlice(bytesType(c.value.size), len(values), len(values))
		for i, v := range values {
			copy(list.Index(i).Bytes(), c.value.convert(v))
		}
		value = list.Interface()
	}
	err := c.new.Update(key, value, flags)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	return err
}

// drop deletes rows that the old table has no more: at first any that it has not, from a
// migration that was broken off, then those that it had.
func (c *tableCopy) drop(kept map[string]bool, now map[string]string) error {
	var extra [][]byte
	if !c.ran {
		for r, err := range rows(c.new) {
			if err != nil {
				return err
			}
			if !kept[string(r.key)] {
				extra = append(extra, r.key)
			}
		}
	}
	for key := range c.seen {
		if _, ok := now[key]; !ok {
			extra = append(extra, c.key.convert([]byte(key)))
		}
	}
	for _, key := range extra {
		if err := c.new.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// rawRow is a row as the kernel has it; values are one a processor where the table is such.
type rawRow struct {
	key    []byte
	values [][]byte
}

const rowsAtOnce = 256

// rows reads a table bucket by bucket, as package maps does, whatever its types are.
func rows(m *ebpf.Map) iter.Seq2[rawRow, error] {
	return func(yield func(rawRow, error) bool) {
		width := 1
		if perCPU(m) {
			var err error
			if width, err = ebpf.PossibleCPU(); err != nil {
				yield(rawRow{}, err)
				return
			}
		}
		var cursor ebpf.MapBatchCursor
		for size := rowsAtOnce; ; {
			keys := reflect.MakeSlice(bytesType(int(m.KeySize())), size, size)
			values := reflect.MakeSlice(bytesType(int(m.ValueSize())), size*width, size*width)
			n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
			if errors.Is(err, unix.ENOSPC) { // one bucket holds more
				size *= 2
				continue
			}
			last := errors.Is(err, ebpf.ErrKeyNotExist)
			if err != nil && !last {
				yield(rawRow{}, err)
				return
			}
			for i := range n {
				r := rawRow{key: keys.Index(i).Bytes()}
				for j := range width {
					r.values = append(r.values, values.Index(i*width+j).Bytes())
				}
				if !yield(r, nil) {
					return
				}
			}
			if last {
				return
			}
		}
	}
}

func bytesType(size int) reflect.Type {
	return reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]()))
}

func perCPU(m *ebpf.Map) bool {
	return m.Type() == ebpf.PerCPUHash || m.Type() == ebpf.PerCPUArray || m.Type() == ebpf.LRUCPUHash
}
