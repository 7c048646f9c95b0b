// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// evict deletes what the datapaths of all nodes know of this client port.
func (r *runner) evict() error {
	for _, n := range r.f.Nodes {
		for _, name := range []string{bpf.DatapathMapFlows, bpf.DatapathMapHalfopen} {
			if err := evict(filepath.Join(n.PinPath, "v1", "maps", name), r.port); err != nil {
				return fmt.Errorf("evict from %s of %s: %w", name, n.Name, err)
			}
		}
	}
	return nil
}

func evict(pin string, port uint16) error {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	var key bpf.DatapathTuple
	var row bpf.DatapathFlow
	var keys []bpf.DatapathTuple
	all := m.Iterate()
	for all.Next(&key, &row) {
		for _, p := range []uint16{key.Sport, key.Dport, row.Sport, row.Dport} {
			if p == port {
				keys = append(keys, key)
				break
			}
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	for _, k := range keys {
		if err := m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}
