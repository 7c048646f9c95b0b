// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"iter"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// How many rows one bpf(2) call reads: few at first, since most walks end soon or are of
// small tables, then twice as many each time. The largest row is half a KiB.
const (
	firstBatch = 32
	mostBatch  = 512
)

// table is one hash map (or the array of one row) whose keys and values are structs
// without padding, so that they go to the kernel without being copied.
type table[K, V any] struct{ m *ebpf.Map }

type row[K, V any] struct {
	key   K
	value V
}

func (t table[K, V]) get(key *K) (V, error) {
	var value V
	err := t.m.Lookup(key, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = ErrNotFound
	}
	return value, err
}

func (t table[K, V]) put(key *K, value *V, flags ebpf.MapUpdateFlags) error {
	err := t.m.Update(key, value, flags)
	switch {
	case errors.Is(err, ebpf.ErrKeyExist):
		return ErrExists
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return ErrNotFound
	case errors.Is(err, unix.E2BIG):
		return t.full()
	}
	return err
}

// full names the table: the caller's error tells of the row.
func (t table[K, V]) full() error {
	name := "?"
	if info, err := t.m.Info(); err == nil {
		name = info.Name
	}
	return fmt.Errorf("%w: %s has room for %d rows", ErrFull, name, t.m.MaxEntries())
}

// delete takes the row away; that there is none is no error.
func (t table[K, V]) delete(key *K) error {
	err := t.m.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// all reads the rows bucket by bucket. Rows written or deleted meanwhile may be missed
// or seen, the others come exactly once: a walk by BPF_MAP_GET_NEXT_KEY would start
// anew when its key vanishes. After an error the walk ends.
func (t table[K, V]) all() iter.Seq2[row[K, V], error] {
	return func(yield func(row[K, V], error) bool) {
		var cursor ebpf.MapBatchCursor
		keys, values := make([]K, firstBatch), make([]V, firstBatch)
		for {
			n, err := t.m.BatchLookup(&cursor, keys, values, nil)
			if errors.Is(err, unix.ENOSPC) {
				// One bucket holds more rows than fit.
				keys, values = make([]K, 2*len(keys)), make([]V, 2*len(values))
				continue
			}
			last := errors.Is(err, ebpf.ErrKeyNotExist)
			if err != nil && !last {
				yield(row[K, V]{}, err)
				return
			}
			for i := range n {
				if !yield(row[K, V]{keys[i], values[i]}, nil) {
					return
				}
			}
			if last {
				return
			}
			if size := 2 * len(keys); size <= mostBatch {
				keys, values = make([]K, size), make([]V, size)
			}
		}
	}
}

// typed turns the rows of a table into what its users know; name goes into errors.
func typed[K, V, T any](t table[K, V], name string, decode func(*K, *V) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range t.all() {
			if err != nil {
				var none T
				yield(none, fmt.Errorf("read %s: %w", name, err))
				return
			}
			if !yield(decode(&r.key, &r.value), nil) {
				return
			}
		}
	}
}

// Collect gathers the rows of an All, or gives the first error.
func Collect[T any](rows iter.Seq2[T, error]) ([]T, error) {
	var out []T
	for r, err := range rows {
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}
