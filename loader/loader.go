// SPDX-License-Identifier: Apache-2.0

// Package loader puts the datapath into the kernel: it loads the object, pins its maps
// and programs under <pinPath>/v<schema>, attaches the programs and replaces them in
// place when the binary carries another build. Nothing it made is known from anything
// but the pins, the links and the filters themselves.
package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// Schema is the number of the tables' layout. Another layout means another directory.
const Schema = 1

// DefaultPinPath is where the pins are unless the configuration says otherwise.
const DefaultPinPath = "/sys/fs/bpf/culvert"

// AttachMode is the key "attach" of the configuration.
type AttachMode string

const (
	AttachAuto   AttachMode = "auto"   // clsact on pod veths; tcx on uplinks and lo where the kernel has it
	AttachTCX    AttachMode = "tcx"    // everywhere
	AttachClsact AttachMode = "clsact" // everywhere
)

// Options say where and how.
type Options struct {
	PinPath string       // DefaultPinPath if empty
	Attach  AttachMode   // AttachAuto if empty
	Netlink Netlink      // needed to attach by clsact and to check it
	Log     *slog.Logger // discarded if nil
	// Did is told, a sentence each, what Ensure repaired; it may be nil.
	Did func(what string)
	// Stop, when it is closed, ends the wait for a lock; nil: nothing does.
	Stop <-chan struct{}

	patience *patience
}

// Datapath is a loaded datapath. It holds descriptors of the maps alone; programs are
// opened when something is to be attached.
type Datapath struct {
	Maps *maps.Set

	opts  Options
	dirs  dirs
	fresh bool
}

// Fresh says that Ensure made the tables: what pods there are, no row tells of.
func (d *Datapath) Fresh() bool { return d.fresh }

// Open opens what is pinned, of whatever build. It never changes anything. It fails
// with ErrNotLoaded when there is nothing, with ErrNotBPFFS when there could not be, and with
// ErrOtherLayout when what there is has to be moved by an Ensure first.
func Open(opts Options) (*Datapath, error) {
	opts = opts.withDefaults()
	d := dirsOf(opts.PinPath)
	if err := checkLayout(opts.PinPath); err != nil {
		return nil, err
	}
	set, err := maps.Open(d.maps)
	if errors.Is(err, fs.ErrNotExist) {
		if fault := checkBPFFS(opts.PinPath); fault != nil {
			return nil, fault
		}
		return nil, notLoaded(opts.PinPath)
	}
	if err != nil {
		return nil, explain(opts.PinPath, err)
	}
	return &Datapath{Maps: set, opts: opts, dirs: d}, nil
}

// Ensure opens the datapath of this binary's build, after having loaded what is
// missing: it mounts bpffs if pinPath lies under /sys/fs/bpf and none is there, pins
// again the tables that the kernel still has of pins which are gone, loads the module
// nf_conntrack, loads and pins the object, moves the tables of another layout, and replaces
// the programs of another build wherever they are attached. It is idempotent; where everything is in
// place it reads one row, takes no lock and does not look into the object.
func Ensure(opts Options) (*Datapath, error) {
	opts = opts.withDefaults()
	if d := openCurrent(opts); d != nil {
		return d, nil
	}
	unlock, err := prepareLocked(opts)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if d := openCurrent(opts); d != nil {
		return d, nil // somebody else loaded it while we waited
	}
	if err := reopen(opts); err != nil {
		return nil, explain(opts.PinPath, err)
	}
	m, err := newMigration(opts)
	if err != nil {
		return nil, explain(opts.PinPath, err)
	}
	defer m.close()
	fresh := len(m.sources) == 0 && !exists(filepath.Join(dirsOf(opts.PinPath).maps, bpf.DatapathMapIfaces))
	if err := load(opts, m); err != nil {
		return nil, explain(opts.PinPath, err)
	}
	d, err := Open(opts)
	if err != nil {
		return nil, err
	}
	d.fresh = fresh
	return d, nil
}

// reopen finds tables whose pins are gone.
func reopen(opts Options) error {
	n, err := recoverPins(opts)
	if err != nil {
		return err
	}
	if n > 0 {
		opts.Log.Warn("pinned again tables whose pins were gone", "pinPath", opts.PinPath, "tables", n)
		opts.Did(fmt.Sprintf("pinned %d tables again whose pins were gone from %s: every row is there", n, opts.PinPath))
	}
	return nil
}

// Close releases the descriptors; what is loaded stays.
func (d *Datapath) Close() error { return d.Maps.Close() }

func (o Options) withDefaults() Options {
	if o.PinPath == "" {
		o.PinPath = DefaultPinPath
	}
	o.PinPath = filepath.Clean(o.PinPath)
	if o.Attach == "" {
		o.Attach = AttachAuto
	}
	if o.Netlink == nil {
		o.Netlink = noNetlink{}
	}
	if o.Did == nil {
		o.Did = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.patience == nil {
		o.patience = &patience{wait: LockWait, longest: longestWait, stop: o.Stop}
	}
	return o
}

// openCurrent gives the datapath if nothing has to be done to it, else nil: why not is
// found out again, under the lock, by who does it.
func openCurrent(opts Options) *Datapath {
	d, err := Open(opts)
	if err != nil {
		return nil
	}
	if l, err := listLayouts(opts.PinPath); err != nil || !l.settled() || len(l.gone) > 0 || !d.current() {
		d.Close()
		return nil
	}
	return d
}

// current says whether the pinned programs are this binary's and complete, and were
// verified with every kernel function that can be had by now.
func (d *Datapath) current() bool {
	config, err := d.Maps.Config.Get()
	if err != nil || config.Build != bpf.Build() || config.Schema != Schema || !exists(d.dirs.links) {
		return false
	}
	for _, name := range programs() {
		if _, err := os.Lstat(filepath.Join(d.dirs.progs, name)); err != nil {
			return false
		}
	}
	for _, name := range slices.Concat(traceTables, addressTables, remoteTables) {
		if _, err := os.Lstat(filepath.Join(d.dirs.maps, name)); err != nil {
			return false
		}
	}
	return config.Features&maps.FeatureConntrack != 0 || !conntrackAppeared()
}

// load does the slow part, under the lock. The build is written last: killed half-way,
// the next Ensure finds another build, or none, and does everything again.
func load(opts Options, m *migration) error {
	kernel := btf.NewCache()
	has := kernelHas{conntrack: loadConntrack(kernel, opts.Log), probeRead: hasProbeRead()}
	spec, err := bpf.LoadDatapath()
	if err != nil {
		return fmt.Errorf("parse object: %w", err)
	}
	if err := configure(spec, has); err != nil {
		return err
	}
	if err := m.handOver(spec); err != nil {
		return err
	}
	dirs := dirsOf(opts.PinPath)
	coll, err := loadCollection(spec, dirs, kernel)
	if err != nil {
		return err
	}
	defer coll.Close()
	if err := bindMaps(coll); err != nil {
		return err
	}
	if err := m.open(spec); err != nil {
		return err
	}
	if err := m.copy(); err != nil {
		return err
	}

	set, err := maps.Open(dirs.maps)
	if err != nil {
		return err
	}
	defer set.Close()
	was, err := set.Config.Get()
	if err != nil {
		return err
	}
	config, err := unfinished(set, features(opts, coll, has.conntrack))
	if err != nil {
		return err
	}
	if err := pinPrograms(coll, dirs); err != nil {
		return err
	}
	if err := swap(opts, dirs, coll, set, m); err != nil {
		return err
	}
	told := "loaded the datapath"
	if was.Build != 0 && was.Build != bpf.Build() {
		told = "put the programs of this build in the place of another one's"
	}
	config.Build = bpf.Build()
	opts.Did(fmt.Sprintf("%s (build %016x)", told, config.Build))
	opts.Log.Info("loaded datapath", "build", fmt.Sprintf("%016x", config.Build), "features", config.Features)
	return set.Config.Put(config)
}

// swap has the programs just loaded run everywhere, on the rows of the layout before, if
// that was another one.
func swap(opts Options, dirs dirs, coll *ebpf.Collection, set *maps.Set, m *migration) error {
	if err := m.copy(); err != nil { // what came during the load
		return err
	}
	if err := m.moveMarks(); err != nil {
		return err
	}
	if err := replaceAttached(opts, dirs, coll, set); err != nil {
		return err
	}
	if len(m.sources) > 0 {
		if err := m.commit(); err != nil {
			return err
		}
		if err := replaceAttached(opts, dirs, coll, set); err != nil { // pods that came meanwhile
			return err
		}
	}
	return m.finish()
}

// unfinished writes the row of a load that has not come to its end. What ADDs wrote into
// it, ports and uplinks, belongs to the node and not to a build: it stays.
func unfinished(set *maps.Set, features maps.Features) (maps.NodeConfig, error) {
	config, err := set.Config.Get()
	if err != nil {
		return config, err
	}
	config.Build, config.Schema = 0, Schema
	config.Features = features | config.Features&maps.FeatureSharedPorts
	return config, set.Config.Put(config)
}

func loadCollection(spec *ebpf.CollectionSpec, dirs dirs, kernel *btf.Cache) (*ebpf.Collection, error) {
	for name, m := range spec.Maps {
		if name[0] != '.' { // .rodata and its like belong to one load
			m.Pinning = ebpf.PinByName
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Maps:  ebpf.MapOptions{PinPath: dirs.maps},
		Cache: kernel,
	})
	if err != nil {
		return nil, fmt.Errorf("load object: %w", err)
	}
	return coll, nil
}
