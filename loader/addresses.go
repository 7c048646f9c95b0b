// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// addressTables are those that Open leaves alone as well: culvert-ipam opens them, which
// other main plugins may call where no datapath is loaded. What they hold is kept, whoever
// made them: a load takes a table that is pinned, and binds it to the programs, so that it is
// found again by these; a migration hands it over or copies it.
var addressTables = []string{bpf.DatapathMapAddresses}

// Addresses is the table of the addresses that culvert-ipam gave.
type Addresses struct {
	*maps.Addresses

	opts Options
}

// OpenAddresses opens the table and changes nothing. It fails as Open does; a datapath need
// not be loaded.
func OpenAddresses(opts Options) (*Addresses, error) {
	opts = opts.withDefaults()
	if err := checkLayout(opts.PinPath); err != nil {
		return nil, err
	}
	t, err := maps.OpenAddresses(dirsOf(opts.PinPath).maps)
	if errors.Is(err, fs.ErrNotExist) {
		if fault := checkBPFFS(opts.PinPath); fault != nil {
			return nil, fault
		}
		return nil, Fault{ErrNotLoaded, "the table of addresses is not pinned under " + opts.PinPath, "the next pod's start makes it"}
	}
	if err != nil {
		return nil, explain(opts.PinPath, err)
	}
	return &Addresses{t, opts}, nil
}

// EnsureAddresses opens the table after having made it, if need be: it mounts bpffs as Ensure
// does, and pins the table again that the kernel still has of pins which are gone. It loads
// no program. Where another layout's tables wait to be moved that is left to Ensure, unless
// there is no other table than this one.
func EnsureAddresses(opts Options) (*Addresses, error) {
	opts = opts.withDefaults()
	if t, err := OpenAddresses(opts); err == nil {
		return t, nil
	}
	unlock, err := prepareLocked(opts)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := makeAddresses(opts); err != nil {
		return nil, explain(opts.PinPath, err)
	}
	return OpenAddresses(opts)
}

// Lock keeps other processes' Lock waiting, and everything that takes Datapath.Lock.
func (t *Addresses) Lock() (unlock func(), err error) { return t.opts.patience.lock(t.opts.PinPath) }

// makeAddresses pins the table if it is not pinned. Call it under the lock.
func makeAddresses(opts Options) error {
	l, err := listLayouts(opts.PinPath)
	if err != nil {
		return err
	}
	for _, from := range l.others {
		if exists(filepath.Join(from.dirs().maps, bpf.DatapathMapConfig)) {
			return checkLayout(opts.PinPath) // nil if ours counts already
		}
	}
	pin := filepath.Join(dirsOf(opts.PinPath).maps, bpf.DatapathMapAddresses)
	if exists(pin) {
		return nil
	}
	if err := reopen(opts); err != nil || exists(pin) {
		return err
	}
	spec, err := bpf.LoadDatapath()
	if err != nil {
		return fmt.Errorf("parse object: %w", err)
	}
	want := spec.Maps[bpf.DatapathMapAddresses]
	m, err := ebpf.NewMap(want)
	if err != nil {
		return fmt.Errorf("make map %s: %w", bpf.DatapathMapAddresses, err)
	}
	defer m.Close()
	if err := adopt(m, want, l.others); err != nil {
		return err
	}
	if err := m.Pin(pin); err != nil {
		return fmt.Errorf("pin map %s: %w", bpf.DatapathMapAddresses, err)
	}
	for _, from := range l.others { // whole only now: killed before, it is done again
		if err := removePin(filepath.Join(from.dirs().maps, bpf.DatapathMapAddresses)); err != nil {
			return err
		}
	}
	opts.Did("made the table of addresses")
	return nil
}

// adopt copies the rows of other layouts into a table that is not pinned yet.
func adopt(m *ebpf.Map, want *ebpf.MapSpec, others []layout) error {
	for _, from := range others {
		old, err := openTable(from.dirs(), bpf.DatapathMapAddresses)
		if err != nil {
			return err
		}
		if old == nil {
			continue
		}
		err = adoptRows(m, want, old)
		old.Close()
		if err != nil {
			return fmt.Errorf("migrate table %s: %w", bpf.DatapathMapAddresses, err)
		}
	}
	return nil
}

func adoptRows(m *ebpf.Map, want *ebpf.MapSpec, old *oldTable) error {
	keyType, valueType, err := old.types(want)
	if err != nil {
		return err
	}
	key, err := newConverter(want.Key, keyType)
	if err != nil {
		return err
	}
	value, err := newConverter(want.Value, valueType)
	if err != nil {
		return err
	}
	c := tableCopy{name: bpf.DatapathMapAddresses, old: old.Map, new: m, key: key, value: value}
	return c.run(ebpf.UpdateNoExist)
}
