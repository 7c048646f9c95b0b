// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// migration moves a node from another layout of the tables to ours, older or newer: tables
// that look the same are handed over as they are, the rows of others are copied, and
// programs and links stay in their places. Killed anywhere, it is done again from where
// the rows are by then. Without other layouts it is empty and does nothing.
type migration struct {
	opts    Options
	own     dirs
	sources []layout // the first one's rows count
	gone    []string // to be removed
	receive bool     // what the first source says goes, not what our tables say
	again   bool     // ours may have rows already that our programs made
	swapped bool     // our programs run
	copies  []*tableCopy
}

// newMigration looks for other layouts. Call it under the lock.
func newMigration(opts Options) (*migration, error) {
	l, err := listLayouts(opts.PinPath)
	if err != nil {
		return nil, err
	}
	m := &migration{opts: opts, own: dirsOf(opts.PinPath), sources: l.others, gone: l.gone}
	m.receive = l.filling || len(l.others) > 0 && !hasPins(schemaPath(opts.PinPath, Schema))
	m.again = l.filling
	if l.filling { // the last rows of a directory that was left may not have come over
		for _, path := range l.gone {
			m.sources = append(m.sources, layout{path: path})
		}
	}
	if m.receive {
		if err := os.Mkdir(fillingMark(opts.PinPath), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("mark a layout that is filled: %w", err)
		}
	}
	return m, nil
}

// handOver pins tables in our directory too that are the same in both layouts: no row is
// copied, none can be lost. The row of config is ours alone, since it tells of one load.
func (m *migration) handOver(spec *ebpf.CollectionSpec) error {
	if !m.receive {
		return nil
	}
	for name, want := range spec.Maps {
		pin := filepath.Join(m.own.maps, name)
		if name[0] == '.' || name == bpf.DatapathMapConfig || slices.Contains(traceTables, name) || exists(pin) {
			continue
		}
		for _, from := range m.sources {
			old, err := openTable(from.dirs(), name)
			if err != nil {
				return err
			}
			if old == nil {
				continue
			}
			err = old.pinIfSame(want, pin)
			old.Close()
			if err != nil {
				return fmt.Errorf("hand over table %s: %w", name, err)
			}
			break // what another source has of it is not what counts
		}
	}
	return nil
}

// open opens the tables to be copied.
func (m *migration) open(spec *ebpf.CollectionSpec) error {
	for i, from := range m.sources {
		for name, want := range spec.Maps {
			// hops: known again in a moment
			if name[0] == '.' || want.Type == ebpf.PerCPUArray || slices.Contains(traceTables, name) {
				continue
			}
			follow := want.Type == ebpf.Hash || want.Type == ebpf.LPMTrie
			once := name == bpf.DatapathMapConfig
			if (i > 0 || !m.receive) && (once || follow && from.filling) {
				continue // of what never came to count only what packets wrote is news
			}
			c, err := openCopy(from.dirs(), m.own, name, want)
			if err != nil {
				return fmt.Errorf("migrate table %s: %w", name, err)
			}
			if c == nil {
				continue
			}
			c.follow, c.once = follow && i == 0 && m.receive, once
			m.copies = append(m.copies, c)
		}
	}
	return nil
}

// copy copies what is new since the last time.
func (m *migration) copy() error {
	for _, c := range m.copies {
		flags := ebpf.UpdateAny
		if m.swapped || m.again || !m.receive {
			flags = ebpf.UpdateNoExist
		}
		if err := c.run(flags); err != nil {
			return fmt.Errorf("migrate table %s: %w", c.name, err)
		}
	}
	return nil
}

// moveMarks moves pins of links, and all marks that say what was done to the node, into our
// directory: each is in one of them.
func (m *migration) moveMarks() error {
	for _, from := range m.sources {
		entries, err := os.ReadDir(from.path)
		if err != nil {
			return fmt.Errorf("list layout: %w", err)
		}
		for _, e := range entries {
			if e.Name() == "maps" || e.Name() == "progs" || !e.IsDir() {
				continue
			}
			own := filepath.Join(filepath.Dir(m.own.links), e.Name())
			if err := moveEntries(filepath.Join(from.path, e.Name()), own); err != nil {
				return fmt.Errorf("move %s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

func moveEntries(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		old, path := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case !exists(path):
			err = os.Rename(old, path)
		case e.IsDir(): // what a network wants: both may have marks
			if err = moveEntries(old, path); err == nil {
				err = removePin(old)
			}
		default: // attached twice, or marked: one is enough
			err = removePin(old)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commit is called when our programs run everywhere. From the renaming on our tables
// count. Whoever of another build still writes rows into the old ones gets an error from
// then on, and his pod is started again; what he wrote before is copied.
func (m *migration) commit() error {
	m.swapped = true
	for _, from := range m.sources {
		if from.schema == 0 { // is gone already
			continue
		}
		gone := filepath.Join(m.opts.PinPath, gonePrefix+filepath.Base(from.path))
		if err := os.RemoveAll(gone); err != nil {
			return fmt.Errorf("remove an old layout: %w", err)
		}
		if err := os.Rename(from.path, gone); err != nil {
			return fmt.Errorf("put an old layout away: %w", err)
		}
		m.gone = append(m.gone, gone)
	}
	for _, c := range m.copies {
		if c.follow && !c.once {
			if err := c.old.Freeze(); err != nil {
				m.opts.Log.Warn("old table stays writable", "table", c.name, "error", err)
			}
		}
	}
	return m.copy()
}

// finish removes what is left of other layouts.
func (m *migration) finish() error {
	if err := removePin(fillingMark(m.opts.PinPath)); err != nil {
		return err
	}
	for _, path := range m.gone {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove an old layout: %w", err)
		}
	}
	for _, from := range m.sources {
		if from.schema != 0 {
			what := fmt.Sprintf("moved the tables from layout %d to layout %d", from.schema, Schema)
			m.opts.Log.Info(what)
			m.opts.Did(what)
			removePin(from.path + fillingSuffix) //nolint:errcheck // no directory is left that it could be about
		}
	}
	return nil
}

func (m *migration) close() {
	for _, c := range m.copies {
		c.close()
	}
}
