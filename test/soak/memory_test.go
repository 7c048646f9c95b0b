// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/maps"
)

// What memory may grow by from the first third's median to the last third's. Of the kernel's
// 28 MB, as charged to the verbs, 24 are maps and programs, which do not move; the rest
// breathes by some hundred kB, as the kernel frees what it caches when it likes. In half an
// hour there are thousands of ADDs: if each leaked a kilobyte, it were a tenth and more.
const (
	mostKernel = 0.05
	mostOurs   = 0.01
	fewest     = 9 // weighings, below which there is no trend
	shortest   = 2 * time.Minute
)

// weight is memory in bytes.
type weight struct {
	kernel  uint64 // of everything that verbs made and that is left of them
	ours    uint64 // the node's maps and programs
	machine uint64 // unreclaimable slabs and per-processor memory, whoever's
}

// flatness is what there was at each count.
type flatness struct {
	first   counts
	weights []weight
	broken  []error
}

func (f *flatness) add(w weight) { f.weights = append(f.weights, w) }

func (s *soak) weigh() (w weight) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		s.fail("weigh: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		var name string
		var kb uint64
		_, _ = fmt.Sscan(line, &name, &kb)
		if name == "SUnreclaim:" || name == "Percpu:" {
			w.machine += kb << 10
		}
	}
	w.kernel, err = s.group.weigh()
	_, err2 := s.eachPin(func(bytes uint64, _ []ebpf.MapID, _ ebpf.MapID) { w.ours += bytes })
	if err := errors.Join(err, err2); err != nil {
		s.fail("weigh: %v", err)
	}
	return w
}

// eachPin visits the node's maps and programs, and says how many programs there are.
func (s *soak) eachPin(visit func(bytes uint64, uses []ebpf.MapID, is ebpf.MapID)) (programs int, err error) {
	at := filepath.Join(s.node.PinPath, "v1")
	pins, err := filepath.Glob(filepath.Join(at, "maps", "*"))
	for _, pin := range pins {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			return 0, err
		}
		info, err := m.Info()
		_ = m.Close()
		if err != nil {
			return 0, err
		}
		bytes, _ := info.Memlock()
		id, _ := info.ID()
		visit(bytes, nil, id)
	}
	progs, err2 := filepath.Glob(filepath.Join(at, "progs", "*"))
	for _, pin := range progs {
		p, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			return 0, err
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			return 0, err
		}
		bytes, _ := info.Memlock()
		uses, _ := info.MapIDs()
		visit(bytes, uses, 0)
	}
	return len(progs), errors.Join(err, err2)
}

// countPrograms counts what the kernel holds of programs that use this node's maps, pinned
// or not, and of maps that those use: other nodes' are on the machine too.
func (s *soak) countPrograms(c counts) error {
	mine := map[ebpf.MapID]bool{}
	if _, err := s.eachPin(func(_ uint64, _ []ebpf.MapID, is ebpf.MapID) { mine[is] = is != 0 }); err != nil {
		return err
	}
	used := map[ebpf.MapID]bool{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		id = next
		uses, err := mapsOf(id)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(uses, func(m ebpf.MapID) bool { return mine[m] }) {
			continue
		}
		c["programs"]++
		for _, m := range uses {
			used[m] = true
		}
	}
	for m := range mine {
		used[m] = true
	}
	c["maps"] = len(used)
	return nil
}

// mapsOf is empty for a program that has gone meanwhile.
func mapsOf(id ebpf.ProgramID) ([]ebpf.MapID, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	uses, _ := info.MapIDs()
	return uses, nil
}

// growth is the last third's median over the first third's, less 1.
func growth(all []weight, of func(weight) uint64) float64 {
	third := len(all) / 3
	if third == 0 {
		return 0
	}
	median := func(part []weight) float64 {
		var v []uint64
		for _, w := range part {
			v = append(v, of(w))
		}
		slices.Sort(v)
		return float64(v[len(v)/2])
	}
	first := median(all[:third])
	if first == 0 { // not to be had
		return 0
	}
	return median(all[len(all)-third:])/first - 1
}

// drop notes a counter of dropped packets: nothing here is to be dropped.
func (s *soak) drop(r maps.Counter) {
	s.tally.drop(fmt.Sprintf("%s %s", r.Hook, r.Reason), r.Ifindex, r.Packets)
}

// report prints the summary and judges memory.
func (s *soak) report(took time.Duration, f *flatness) {
	kernel := growth(f.weights, func(w weight) uint64 { return w.kernel })
	machine := growth(f.weights, func(w weight) uint64 { return w.machine })
	ours := growth(f.weights, func(w weight) uint64 { return w.ours })
	last := f.weights[len(f.weights)-1]
	t := &s.tally
	for what, n := range t.dropped() {
		// A DEL that was killed leaves a pod that speaks without a row, until it is mended.
		if what == "from_pod source" && t.kills.Load() > 0 {
			fmt.Printf("soak: of pods whose DEL was killed, %d packets dropped: %s\n", n, what)
			continue
		}
		s.fail("%d packets dropped: %s", n, what)
	}
	if s.time >= shortest && len(f.weights) >= fewest {
		if kernel > mostKernel || ours > mostOurs {
			s.fail("memory grows: the kernel's by %.1f %%, of maps and programs by %.1f %%: %v", 100*kernel, 100*ours, f.weights)
		}
	}
	flat := func(what string) string {
		for _, err := range f.broken {
			if strings.Contains(err.Error(), what) {
				return what + " not flat"
			}
		}
		return what + " flat"
	}
	fmt.Printf("soak: SOAK_SEED=%d, statuses %d, limits set %d, told to try again %d, programs replaced %d times, counts %d, each of %v\n",
		s.seed, t.statuses.Load(), t.limits.Load(), t.busy.Load(), t.builds.Load(), len(f.weights), f.first)
	fmt.Printf("soak: memory of the kernel for what verbs made %d kB (%+.1f %%), of maps and programs alone %d kB (%+.1f %%), of the whole machine %d MB (%+.1f %%)\n",
		last.kernel>>10, 100*kernel, last.ours>>10, 100*ours, last.machine>>20, 100*machine)
	fmt.Printf("soak: %s, adds %d, dels %d, checks %d, gcs %d, kills %d, requests %d, errors %d, %s, %s, %s, memory %+.1f %%\n",
		took.Round(time.Second), t.adds.Load(), t.dels.Load(), t.checks.Load(), t.gcs.Load(), t.kills.Load(), t.requests.Load(), t.errors.Load(),
		flat("rows"), flat("links"), flat("qdiscs"), 100*kernel)
}
