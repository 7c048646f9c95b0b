// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// used are pin directories of nodes that are gone, with the programs loaded.
var used struct {
	sync.Mutex
	dirs []string
}

// NodePins is PinPath for a node. The verifier of an emulated machine takes ten seconds for
// the programs: there the directory of a node that is gone serves the next one, with empty
// tables. Loading is tried by those tests that spoil what is pinned, and by package loader.
func NodePins(tb testing.TB) string {
	tb.Helper()
	if !Emulated() {
		return PinPath(tb)
	}
	dir := takePins()
	if dir == "" {
		dir = makePins(tb)
	}
	tb.Cleanup(func() {
		if detach(dir) != nil || !loaded(dir) {
			if err := os.RemoveAll(dir); err != nil {
				tb.Errorf("remove pins: %v", err)
			}
			return
		}
		used.Lock()
		defer used.Unlock()
		used.dirs = append(used.dirs, dir)
	})
	return dir
}

// takePins gives a used directory, cleared; "" if there is none.
func takePins() string {
	used.Lock()
	defer used.Unlock()
	for len(used.dirs) > 0 {
		dir := used.dirs[0]
		used.dirs = used.dirs[1:]
		if clearTables(dir) == nil {
			return dir
		}
		_ = os.RemoveAll(dir)
	}
	return ""
}

// loaded says whether the directory has the programs of this tree, as they were loaded.
func loaded(dir string) bool {
	set, err := maps.Open(filepath.Join(dir, "v1", "maps"))
	if err != nil {
		return false
	}
	defer set.Close()
	config, err := set.Config.Get()
	progs, _ := filepath.Glob(filepath.Join(dir, "v1", "progs", "*"))
	spec, specErr := bpf.LoadDatapath()
	return errors.Join(err, specErr) == nil && config.Build == bpf.Build() && len(progs) == len(spec.Programs)
}

// detach takes the links away; filters go with their devices.
func detach(dir string) error {
	pins, err := filepath.Glob(filepath.Join(dir, "v1", "links", "*"))
	errs := []error{err}
	for _, pin := range pins {
		if l, err := link.LoadPinnedLink(pin, nil); err == nil { // else the mark of a filter
			errs = append(errs, l.Detach(), l.Close())
		}
		errs = append(errs, os.Remove(pin))
	}
	return errors.Join(errs...)
}

// clearTables empties every map. Of config what the load wrote stays.
func clearTables(dir string) error {
	dir = filepath.Join(dir, "v1", "maps")
	pins, err := filepath.Glob(filepath.Join(dir, "*"))
	errs := []error{err}
	for _, pin := range pins {
		errs = append(errs, clearMap(pin))
	}
	set, err := maps.Open(dir)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer set.Close()
	was, err := set.Config.Get()
	config := maps.NodeConfig{Build: was.Build, Schema: was.Schema, Features: was.Features &^ maps.FeatureSharedPorts}
	return errors.Join(append(errs, err, set.Config.Put(config))...)
}

func clearMap(pin string) error {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	switch m.Type() {
	case ebpf.Array, ebpf.PerCPUArray, ebpf.RingBuf: // what is not rows of somebody
		return nil
	}
	key := make([]byte, m.KeySize())
	for {
		err := m.NextKey(nil, key)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err == nil {
			err = m.Delete(key)
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear %s: %w", pin, err)
		}
	}
}
