// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// bpffsRoot is the one place where a bpffs is mounted if there is none.
const bpffsRoot = "/sys/fs/bpf"

// dirs are the three directories of a schema.
type dirs struct{ maps, progs, links string }

func dirsOf(pinPath string) dirs { return dirsOfSchema(pinPath, Schema) }

func dirsOfSchema(pinPath string, schema uint32) dirs { return dirsIn(schemaPath(pinPath, schema)) }

// pinPathOf is the reverse of dirsOf.
func pinPathOf(d dirs) string { return filepath.Dir(filepath.Dir(d.maps)) }

// prepare makes the directories that the pins go to.
func prepare(opts Options) error {
	if err := checkKernel(); err != nil {
		return err
	}
	mounted, err := mountBPFFS(opts.PinPath)
	if err != nil {
		return explain(opts.PinPath, err)
	}
	if mounted {
		opts.Did("mounted a bpffs at " + bpffsRoot)
	}
	if err := checkBPFFS(opts.PinPath); err != nil {
		return err
	}
	d := dirsOf(opts.PinPath)
	for _, dir := range []string{d.maps, d.progs, d.links} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return explain(opts.PinPath, fmt.Errorf("make pin directory: %w", err))
		}
	}
	return nil
}

// prepareLocked is prepare, and takes the lock under which pins are made.
func prepareLocked(opts Options) (unlock func(), err error) {
	if err := prepare(opts); err != nil {
		return nil, err
	}
	return opts.patience.lock(opts.PinPath)
}

// mountBPFFS mounts a bpffs at /sys/fs/bpf if pinPath lies there and none is mounted.
func mountBPFFS(pinPath string) (mounted bool, err error) {
	if !mountable(pinPath) {
		return false, nil
	}
	if on, err := onBPFFS(bpffsRoot); err != nil || on {
		return false, err
	}
	err = unix.Mount("bpf", bpffsRoot, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
	if err != nil {
		return false, fmt.Errorf("mount bpffs at %s: %w", bpffsRoot, err)
	}
	return true, nil
}

// mountable says whether we mount a bpffs for a pinPath if there is none.
func mountable(pinPath string) bool {
	return pinPath == bpffsRoot || strings.HasPrefix(pinPath, bpffsRoot+"/")
}

// onBPFFS says whether what is made at path would lie on a bpffs: it asks the nearest
// directory that exists.
func onBPFFS(path string) (bool, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		switch {
		case err == nil:
			return uint32(st.Type) == unix.BPF_FS_MAGIC, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, fs.ErrNotExist) || path == "/" || path == ".":
			return false, fmt.Errorf("statfs %s: %w", path, err)
		default:
			path = filepath.Dir(path)
		}
	}
}

// pinPrograms puts the programs in the place of those pinned before, each in one step,
// so that whoever opens a pin finds the one or the other.
func pinPrograms(coll *ebpf.Collection, d dirs) error {
	for _, name := range programs() {
		prog := coll.Programs[name]
		if prog == nil {
			return fmt.Errorf("pin program %s: the object has none", name)
		}
		path := filepath.Join(d.progs, name)
		next := path + "_next" // bpffs refuses names with a dot
		if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", next, err)
		}
		if err := prog.Pin(next); err != nil {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
		if err := os.Rename(next, path); err != nil {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
	}
	return nil
}

// removePin takes a pin, or a mark, away; it is no error that there is none.
func removePin(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pin %s: %w", path, err)
	}
	return nil
}
