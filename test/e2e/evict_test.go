// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/netns"
)

// evict deletes what the datapaths of all nodes know of a client's port.
func (r *runner) evict(port uint16) error {
	for _, n := range r.f.Nodes {
		if _, err := evict(n, ofPort(port)); err != nil {
			return err
		}
	}
	return nil
}

// ofPort matches every row in which a port occurs.
func ofPort(port uint16) func(*bpf.DatapathTuple, *bpf.DatapathFlow) bool {
	return func(key *bpf.DatapathTuple, row *bpf.DatapathFlow) bool {
		return slices.Contains([]uint16{key.Sport, key.Dport, row.Sport, row.Dport}, port)
	}
}

// evict deletes the rows of flows and halfopen that match, as an LRU would that needs
// the room, and says how many there were.
func evict(n *netns.Node, match func(*bpf.DatapathTuple, *bpf.DatapathFlow) bool) (gone int, err error) {
	for _, name := range []string{bpf.DatapathMapFlows, bpf.DatapathMapHalfopen} {
		k, err := evictFrom(filepath.Join(n.PinPath, "v1", "maps", name), match)
		if err != nil {
			return gone, fmt.Errorf("evict from %s of %s: %w", name, n.Name, err)
		}
		gone += k
	}
	return gone, nil
}

func evictFrom(pin string, match func(*bpf.DatapathTuple, *bpf.DatapathFlow) bool) (int, error) {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	var key bpf.DatapathTuple
	var row bpf.DatapathFlow
	var keys []bpf.DatapathTuple
	all := m.Iterate()
	for all.Next(&key, &row) {
		if match(&key, &row) {
			keys = append(keys, key)
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return 0, err
	}
	for _, k := range keys {
		if err := m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, err
		}
	}
	return len(keys), nil
}
