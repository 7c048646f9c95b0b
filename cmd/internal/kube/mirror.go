// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// mirror is what the API server has of one kind, as values of T: the store that a client-go
// reflector fills. It keeps only what the agent needs of an object, since each node watches
// every Node and every block; and it takes what this agent wrote itself before the watch
// tells of it, so that nothing is claimed twice.
type mirror[T any] struct {
	parse   func(obj any) (value T, wanted bool)
	same    func(a, b T) bool
	changed func()

	mu     sync.Mutex
	rows   map[string]row[T]
	synced bool
}

type row[T any] struct {
	version uint64 // resourceVersion, which grows
	value   T
}

func newMirror[T any](changed func(), same func(a, b T) bool, parse func(any) (T, bool)) *mirror[T] {
	return &mirror[T]{parse: parse, same: same, changed: changed, rows: map[string]row[T]{}}
}

// snapshot gives a copy of all values by key, and whether the first list has come.
func (m *mirror[T]) snapshot() (map[string]T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]T, len(m.rows))
	for key, r := range m.rows {
		all[key] = r.value
	}
	return all, m.synced
}

// read gives an object's key and row.
func (m *mirror[T]) read(obj any) (key string, r row[T], wanted bool, err error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return "", r, false, fmt.Errorf("read %T: %w", obj, err)
	}
	key = o.GetName()
	if o.GetNamespace() != "" {
		key = o.GetNamespace() + "/" + key
	}
	r.version, _ = strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	r.value, wanted = m.parse(obj)
	return key, r, wanted, nil
}

// Add takes an object, as Update does, unless a later state of it is known.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

func (m *mirror[T]) Update(obj any) error {
	key, r, wanted, err := m.read(obj)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.rows[key]
	switch {
	case known && was.version > r.version:
		return nil
	case wanted:
		m.rows[key] = r
	default:
		delete(m.rows, key)
	}
	if known != wanted || known && !m.same(was.value, r.value) {
		m.changed()
	}
	return nil
}

// Delete forgets an object, unless it has been made anew meanwhile.
func (m *mirror[T]) Delete(obj any) error {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	key, r, _, err := m.read(obj)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, known := m.rows[key]; known && was.version <= r.version {
		delete(m.rows, key)
		m.changed()
	}
	return nil
}

// Replace takes a whole list, and keeps what is known to be later than the list.
func (m *mirror[T]) Replace(objs []any, version string) error {
	listed, _ := strconv.ParseUint(version, 10, 64)
	rows := make(map[string]row[T], len(objs))
	for _, obj := range objs {
		key, r, wanted, err := m.read(obj)
		if err != nil {
			return err
		}
		if wanted {
			rows[key] = r
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.rows {
		if r.version > listed {
			rows[key] = r
		}
	}
	equal := maps.EqualFunc(m.rows, rows, func(a, b row[T]) bool { return m.same(a.value, b.value) })
	m.rows = rows
	if !equal || !m.synced {
		m.synced = true
		m.changed()
	}
	return nil
}

// Resync has nothing to do: the agent looks at everything each time.
func (m *mirror[T]) Resync() error { return nil }
