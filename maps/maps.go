// SPDX-License-Identifier: Apache-2.0

// Package maps gives the pinned tables of the datapath Go types. The structs that the
// kernel sees come from package bpf, generated from bpf/lib/types.h; here they meet
// netip and named integers, and nowhere else.
//
// Every method is one or a few bpf(2) calls; nothing is cached. A Set may be used by
// several goroutines at once.
package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

var (
	// ErrNotFound says that a table has no row of the key asked for.
	ErrNotFound = errors.New("no such row")
	// ErrExists says that somebody else's row holds the key.
	ErrExists = errors.New("row exists")
	// ErrFull says that a table has no room for another row.
	ErrFull = errors.New("the table is full")
)

// Set is every table of one pin directory.
type Set struct {
	Pods      *Pods
	Ifaces    *Ifaces
	Hostports *Hostports
	Limits    *Limits
	Flows     *Flows
	Halfopen  *Flows
	Fragments *Fragments
	Nonmasq   *Cidrs
	Excluded  *Cidrs
	Remotes   *Remotes
	Counters  *Counters
	Config    *Config

	opened []*ebpf.Map
}

// Open opens the maps pinned in dir, <pinPath>/v1/maps. It changes nothing. A map that
// is not there is an error that wraps fs.ErrNotExist.
func Open(dir string) (*Set, error) {
	var err error
	s := &Set{}
	open := func(name string) *ebpf.Map {
		if err != nil {
			return nil
		}
		var m *ebpf.Map
		if m, err = ebpf.LoadPinnedMap(filepath.Join(dir, name), nil); err != nil {
			err = fmt.Errorf("open map %s in %s: %w", name, dir, err)
			return nil
		}
		s.opened = append(s.opened, m)
		return m
	}
	s.Pods = &Pods{table[bpf.DatapathPodKey, bpf.DatapathPod]{open(bpf.DatapathMapPods)}}
	s.Ifaces = &Ifaces{table[bpf.DatapathIfaceKey, bpf.DatapathIface]{open(bpf.DatapathMapIfaces)}}
	s.Hostports = &Hostports{table[bpf.DatapathHostportKey, bpf.DatapathHostport]{open(bpf.DatapathMapHostports)}}
	s.Limits = &Limits{table[bpf.DatapathLimitKey, bpf.DatapathLimit]{open(bpf.DatapathMapLimits)}}
	s.Flows = &Flows{rows: table[bpf.DatapathTuple, bpf.DatapathFlow]{open(bpf.DatapathMapFlows)}}
	s.Halfopen = &Flows{rows: table[bpf.DatapathTuple, bpf.DatapathFlow]{open(bpf.DatapathMapHalfopen)}, halfOpen: true}
	s.Fragments = &Fragments{table[bpf.DatapathFragmentKey, bpf.DatapathFragment]{open(bpf.DatapathMapFragments)}}
	s.Nonmasq = openCidrs(open, bpf.DatapathMapNonmasq)
	s.Excluded = openCidrs(open, bpf.DatapathMapExcluded)
	remotes := open
	if _, missing := os.Lstat(filepath.Join(dir, bpf.DatapathMapRemotes)); errors.Is(missing, fs.ErrNotExist) {
		remotes = func(string) *ebpf.Map { return nil } // pinned by a build that has none
	}
	s.Remotes = &Remotes{table[bpf.DatapathCidrKey, bpf.DatapathRemote]{remotes(bpf.DatapathMapRemotes)}}
	s.Counters = &Counters{open(bpf.DatapathMapCounters)}
	s.Config = &Config{table[uint32, bpf.DatapathNodeConfig]{open(bpf.DatapathMapConfig)}}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func openCidrs(open func(string) *ebpf.Map, name string) *Cidrs {
	return &Cidrs{table[bpf.DatapathCidrKey, bpf.DatapathCidr]{open(name)}, name}
}

// Close releases the descriptors; the pins stay. It may be called twice.
func (s *Set) Close() error {
	var errs []error
	for _, m := range s.opened {
		errs = append(errs, m.Close())
	}
	s.opened = nil
	return errors.Join(errs...)
}
