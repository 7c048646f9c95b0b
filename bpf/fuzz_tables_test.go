// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet/model"
)

// all reads a whole table.
func all[K, V any](m *ebpf.Map) (keys []K, values []V, err error) {
	const chunk = 8192
	var cursor ebpf.MapBatchCursor
	k, v := make([]K, chunk), make([]V, chunk)
	for {
		n, err := m.BatchLookup(&cursor, k, v, nil)
		keys, values = append(keys, k[:n]...), append(values, v[:n]...)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return keys, values, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read rows of %v: %w", m, err)
		}
	}
}

// wipe empties the tables of flows, fragments and drops.
func (s *stage) wipe() {
	s.Helper()
	err := errors.Join(wipe[bpf.DatapathTuple, bpf.DatapathFlow](s.maps.Flows),
		wipe[bpf.DatapathTuple, bpf.DatapathFlow](s.maps.Halfopen),
		wipe[bpf.DatapathFragmentKey, bpf.DatapathFragment](s.maps.Fragments))
	for key := range s.Object.Drops(s) {
		err = errors.Join(err, s.maps.Counters.Delete(key))
	}
	if err != nil {
		s.Fatal(err)
	}
}

func wipe[K, V any](m *ebpf.Map) error {
	keys, _, err := all[K, V](m)
	if err != nil || len(keys) == 0 {
		return err
	}
	_, err = m.BatchDelete(keys, nil)
	return err
}

// compare holds the datapath's tables against the model's.
func (s *stage) compare() error {
	return errors.Join(s.compareFlows(), s.compareFragments(), s.compareDrops())
}

func (s *stage) compareFlows() error {
	var errs []error
	count := 0
	for _, half := range []bool{false, true} {
		keys, values, err := all[bpf.DatapathTuple, bpf.DatapathFlow](s.flowTable(half))
		if err != nil {
			return err
		}
		count += len(keys)
		for i, key := range keys {
			got, want := flowOf(values[i], half), s.Rows[tupleOf(key)]
			if want == nil {
				errs = append(errs, fmt.Errorf("half open %v: unexpected %s: %s", half, name(key), show(values[i])))
				continue
			}
			got.Age = want.Age
			seen := values[i].SeenNs
			if got != *want || want.Age == 0 && seen < s.began-clockSlack || want.Age != 0 && seen != s.began-uint64(want.Age) {
				errs = append(errs, fmt.Errorf("%s: began %d:\ngot  half open %v %s\nwant half open %v %s", name(key), s.began,
					half, show(values[i]), want.Half, show(flowRow(*want, s.began))))
			}
		}
	}
	if count != len(s.Rows) {
		errs = append(errs, fmt.Errorf("%d rows of flows, want %d", count, len(s.Rows)))
	}
	return errors.Join(errs...)
}

func (s *stage) compareFragments() error {
	keys, values, err := all[bpf.DatapathFragmentKey, bpf.DatapathFragment](s.maps.Fragments)
	if err != nil {
		return err
	}
	got, want := map[model.Datagram]model.Begun{}, map[model.Datagram]model.Begun{}
	for i, key := range keys {
		d := model.Datagram{Src: key.Src.Ip, Dst: key.Dst.Ip, ID: key.Id, Proto: key.Proto, Side: model.Side(key.Side)}
		got[d] = model.Begun{Tuple: tupleOf(values[i].Tuple), Orphan: values[i].Tuple == bpf.DatapathTuple{}}
	}
	for d, row := range s.Fragments {
		want[d] = model.Begun{Tuple: row.Tuple, Orphan: row.Orphan}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("fragments: got %v, want %v", got, want)
	}
	return nil
}

func (s *stage) compareDrops() error {
	got := map[model.Drop]model.Count{}
	for key, count := range s.Object.Drops(s) {
		d := model.Drop{Device: int(key.Ifindex), Hook: model.Hook(key.Hook), Reason: model.Reason(key.Reason)}
		got[d] = model.Count{Packets: count.Packets, Bytes: count.Bytes}
	}
	if !maps.Equal(got, s.Drops) {
		return fmt.Errorf("counters: got %v, want %v", got, s.Drops)
	}
	return nil
}
