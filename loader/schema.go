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
	"strconv"
	"strings"

	"github.com/culvert-cni/culvert/bpf"
)

// Each layout of the tables has its directory: <pinPath>/v<schema>. While it is filled from
// another one's rows there is <pinPath>/v<schema>_filling beside it, which is taken away as
// the last thing; a directory whose rows are all elsewhere by now is renamed to
// gone_v<schema>, in one step, before it is removed. So of several the one that counts is
// known however a migration ended: it has no mark, or is alone.
const (
	fillingSuffix = "_filling"
	gonePrefix    = "gone_"
)

// layouts is what there is under a pinPath.
type layouts struct {
	filling bool     // ours is marked
	others  []layout // that have pins, the one that counts first
	gone    []string // paths
}

// layout is another schema's directory.
type layout struct {
	schema  uint32
	path    string
	filling bool
}

func (l layout) dirs() dirs { return dirsIn(l.path) }

func dirsIn(root string) dirs {
	return dirs{
		maps:  filepath.Join(root, "maps"),
		progs: filepath.Join(root, "progs"),
		links: filepath.Join(root, "links"),
	}
}

func schemaPath(pinPath string, schema uint32) string {
	return filepath.Join(pinPath, fmt.Sprintf("v%d", schema))
}

func fillingMark(pinPath string) string { return schemaPath(pinPath, Schema) + fillingSuffix }

// listLayouts reads one directory, and another one for each that another schema left.
func listLayouts(pinPath string) (layouts, error) {
	var l layouts
	entries, err := os.ReadDir(pinPath)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("list layouts: %w", err)
	}
	marks := map[string]bool{}
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), fillingSuffix); ok {
			marks[base] = true
		}
	}
	l.filling = marks[filepath.Base(schemaPath(pinPath, Schema))]
	for _, e := range entries {
		path := filepath.Join(pinPath, e.Name())
		if strings.HasPrefix(e.Name(), gonePrefix) {
			l.gone = append(l.gone, path)
			continue
		}
		schema, ok := parseSchema(e.Name())
		switch {
		case !ok, schema == Schema:
		case hasPins(path):
			l.others = append(l.others, layout{schema, path, marks[e.Name()]})
		}
	}
	slices.SortStableFunc(l.others, func(a, b layout) int {
		switch {
		case a.filling != b.filling && a.filling:
			return 1
		case a.filling != b.filling:
			return -1
		}
		return int(b.schema) - int(a.schema) // none of them unfinished: the newest
	})
	return l, nil
}

// settled says that nothing has to be moved: only our directory is there, and it is whole.
func (l layouts) settled() bool { return !l.filling && len(l.others) == 0 }

func parseSchema(name string) (uint32, bool) {
	number, ok := strings.CutPrefix(name, "v")
	schema, err := strconv.ParseUint(number, 10, 32)
	return uint32(schema), ok && err == nil && name == fmt.Sprintf("v%d", schema)
}

// hasPins says whether a table of that directory is pinned. Whoever only prepared a load
// left empty directories.
func hasPins(root string) bool {
	entries, err := os.ReadDir(dirsIn(root).maps)
	return err == nil && len(entries) > 0
}

// checkLayout refuses to open tables that do not count, or not yet.
func checkLayout(pinPath string) error {
	l, err := listLayouts(pinPath)
	if err != nil || l.settled() || !l.filling && hasPins(schemaPath(pinPath, Schema)) {
		return nil // it is found out by who opens them
	}
	found := "unfinished"
	if len(l.others) > 0 {
		found = fmt.Sprintf("of layout %d", l.others[0].schema)
	}
	return Fault{
		ErrOtherLayout, fmt.Sprintf("the tables under %s are %s, this program's are of layout %d", pinPath, found, Schema),
		"the next pod's start moves them, as does culvertctl upgrade",
	}
}

// Running is what runs under a pinPath, of whatever layout.
type Running struct {
	Build   uint64 // 0 while a load has not come to its end
	Schema  uint32 // 0: no tables are pinned
	Current bool   // it is this binary's, and nothing is left to do
}

// Loaded looks at what runs and changes nothing.
func Loaded(opts Options) (Running, error) {
	opts = opts.withDefaults()
	if d := openCurrent(opts); d != nil {
		defer d.Close()
		return Running{bpf.Build(), Schema, true}, nil
	}
	l, err := listLayouts(opts.PinPath)
	if err != nil {
		return Running{}, explain(opts.PinPath, err)
	}
	counts := layout{schema: Schema, path: schemaPath(opts.PinPath, Schema)}
	if len(l.others) > 0 && (l.filling || !hasPins(counts.path)) {
		counts = l.others[0]
	}
	config, err := openTable(counts.dirs(), bpf.DatapathMapConfig)
	if err != nil || config == nil {
		return Running{}, err
	}
	defer config.Close()
	row, err := config.LookupBytes(uint32(0))
	if err != nil || len(row) < 8 {
		return Running{}, fmt.Errorf("read config of layout %d: %w", counts.schema, err)
	}
	return Running{Build: binary.NativeEndian.Uint64(row), Schema: counts.schema}, nil // every layout begins so
}
