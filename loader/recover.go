// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/bpf"
)

// When bpffs is unmounted, or pins are deleted by hand, the tables live on in the kernel
// as long as a program that uses them runs somewhere: as a filter on a pod's veth. So they
// are found again by the programs' ids and pinned where they were, with every row.

// Filter is one of our clsact filters.
type Filter struct {
	Ifindex int
	Egress  bool
	Name    string // as filterName gives it
	Program uint32 // id
}

// bindMaps has every program hold every table, those that only we read too. Then the one
// that is left is enough to find all of them.
func bindMaps(coll *ebpf.Collection) error {
	for program, p := range coll.Programs {
		for name, m := range coll.Maps {
			if err := p.BindMap(m); err != nil {
				return fmt.Errorf("bind map %s to %s: %w", name, program, err)
			}
		}
	}
	return nil
}

// recoverPins pins tables again that are in the kernel but not under pinPath, and marks the
// devices whose filters are ours. It says how many tables it pinned. Call it under the lock.
func recoverPins(opts Options) (int, error) {
	if complete(dirsOf(opts.PinPath)) {
		return 0, nil
	}
	filters, err := ourFilters(opts)
	if err != nil {
		return 0, err
	}
	set, err := liveTables(opts, filters)
	if err != nil || set == nil {
		return 0, err
	}
	defer set.close()
	d := dirsOfSchema(opts.PinPath, set.schema)
	for _, dir := range []string{d.maps, d.progs, d.links} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return 0, fmt.Errorf("make pin directory: %w", err)
		}
	}
	n, err := set.pin(d.maps)
	return n, errors.Join(err, markFilters(d, filters))
}

// complete says whether every table that this build knows is pinned, or another schema's
// are: those are migrated, not looked for.
func complete(d dirs) bool {
	for _, name := range slices.Concat(tableNames, traceTables, addressTables, remoteTables) {
		if !exists(filepath.Join(d.maps, name)) {
			others, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(d.maps)), "v*", "maps", bpf.DatapathMapConfig))
			own := filepath.Join(d.maps, bpf.DatapathMapConfig)
			return len(others) > 1 || len(others) == 1 && others[0] != own
		}
	}
	return true
}

// tableNames are the tables that package maps opens: without one of them there is no
// datapath.
var tableNames = []string{
	bpf.DatapathMapPods, bpf.DatapathMapIfaces, bpf.DatapathMapHostports, bpf.DatapathMapLimits, bpf.DatapathMapFlows,
	bpf.DatapathMapHalfopen, bpf.DatapathMapFragments, bpf.DatapathMapNonmasq, bpf.DatapathMapExcluded,
	bpf.DatapathMapCounters, bpf.DatapathMapConfig,
}

// tables are the maps of one datapath, by name.
type tables struct {
	maps   map[string]*ebpf.Map
	schema uint32
	users  int // programs
}

func (t *tables) close() {
	for _, m := range t.maps {
		m.Close()
	}
}

// pin pins what is not pinned there.
func (t *tables) pin(dir string) (n int, err error) {
	for name, m := range t.maps {
		path := filepath.Join(dir, name)
		if exists(path) {
			continue
		}
		if err := m.Pin(path); err != nil {
			return n, fmt.Errorf("pin map %s again: %w", name, err)
		}
		n++
	}
	return n, nil
}

// liveTables finds the tables by the programs that run. Should there be two sets of them,
// as when some pods outlived an earlier loss, it is the one that more programs use.
func liveTables(opts Options, filters []Filter) (*tables, error) {
	sets := map[ebpf.MapID]*tables{}
	var best *tables
	for _, id := range livePrograms(opts, filters) {
		maps, config := mapsOf(id)
		set := sets[config]
		switch {
		case config == 0:
			closeAll(maps)
			continue
		case set == nil:
			schema, err := schemaOf(maps[bpf.DatapathMapConfig])
			if err != nil {
				closeAll(maps)
				return nil, err
			}
			set = &tables{maps: maps, schema: schema}
			sets[config] = set
		default:
			closeAll(maps)
		}
		if set.users++; best == nil || set.users > best.users {
			best = set
		}
	}
	for _, set := range sets {
		if set != best {
			set.close()
		}
	}
	return best, nil
}

func closeAll(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

// livePrograms are the ids of our programs that are still pinned, linked or attached.
func livePrograms(opts Options, filters []Filter) []ebpf.ProgramID {
	var ids []ebpf.ProgramID
	d := dirsOf(opts.PinPath)
	for _, name := range programs() {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(d.progs, name), nil)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil {
			id, _ := info.ID()
			ids = append(ids, id)
		}
		p.Close()
	}
	list, _ := attachments(d)
	for _, a := range list {
		if l, err := link.LoadPinnedLink(a.path, nil); err == nil {
			if info, err := l.Info(); err == nil {
				ids = append(ids, info.Program)
			}
			l.Close()
		}
	}
	for _, f := range filters {
		ids = append(ids, ebpf.ProgramID(f.Program))
	}
	return ids
}

// mapsOf opens the maps of a program, and gives the id of its table config; 0 if it has
// none or is gone.
func mapsOf(id ebpf.ProgramID) (map[string]*ebpf.Map, ebpf.MapID) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, 0
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, 0
	}
	ids, _ := info.MapIDs()
	maps, config := map[string]*ebpf.Map{}, ebpf.MapID(0)
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		info, err := m.Info()
		if err != nil || strings.Contains(info.Name, ".") { // .rodata and its like belong to one load
			m.Close()
			continue
		}
		if info.Name == bpf.DatapathMapConfig {
			config = id
		}
		maps[info.Name] = m
	}
	return maps, config
}

// schemaOf reads the number that every schema has behind the build in the row of config.
func schemaOf(config *ebpf.Map) (uint32, error) {
	row, err := config.LookupBytes(uint32(0))
	if err == nil && len(row) < 12 {
		err = fmt.Errorf("%d bytes are no row", len(row))
	}
	if err != nil {
		return 0, fmt.Errorf("read config that was found again: %w", err)
	}
	if schema := binary.NativeEndian.Uint32(row[8:]); schema != 0 {
		return schema, nil
	}
	return Schema, nil // its load did not come to its end
}

// ourFilters lists the filters of this pinPath; none where nobody can list them.
func ourFilters(opts Options) ([]Filter, error) {
	all, err := opts.Netlink.ListFilters()
	if errors.Is(err, errNoNetlink) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for filters of a lost datapath: %w", err)
	}
	var ours []Filter
	for _, f := range all {
		if _, ok := hookNamed(f, opts.PinPath); ok {
			ours = append(ours, f)
		}
	}
	return ours, nil
}

// markFilters makes the marks of filters on devices that are no pods'.
func markFilters(d dirs, filters []Filter) error {
	var errs []error
	for _, f := range filters {
		h, ok := hookNamed(f, pinPathOf(d))
		if !ok || h.device == "pod" {
			continue
		}
		if err := os.Mkdir(markPath(d, h, f.Ifindex), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, fmt.Errorf("mark device: %w", err))
		}
	}
	return errors.Join(errs...)
}

// hookNamed is the reverse of filterName.
func hookNamed(f Filter, pinPath string) (hook, bool) {
	for _, h := range allHooks() {
		if f.Egress == h.egress && f.Name == filterName(h, pinPath) {
			return h, true
		}
	}
	return hook{}, false
}
