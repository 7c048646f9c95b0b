// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// ErrTraced says that somebody else follows packets.
var ErrTraced = errors.New("traced")

// traceTables are those that Open leaves alone: only who follows packets opens them. They hold
// nothing that a load or another layout has to keep.
var traceTables = []string{bpf.DatapathMapTrace, bpf.DatapathMapEvents}

// Trace is the way to follow packets, of one process at a time.
type Trace struct {
	*maps.Trace

	dir  string
	lock int
}

// Trace opens the tables that packets are followed by. It is ErrTraced while somebody has
// them, and ErrNotLoaded if what runs is of a build that had none.
func (d *Datapath) Trace() (*Trace, error) {
	lock, err := lockTrace(d.dirs.maps)
	if err != nil {
		return nil, err
	}
	t, err := maps.OpenTrace(d.dirs.maps)
	if err != nil {
		unix.Close(lock)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Fault{ErrNotLoaded, "the tables of trace are not pinned under " + d.opts.PinPath,
			"the next pod's start makes them, as does culvertctl upgrade"}
	}
	if err != nil {
		return nil, explain(d.opts.PinPath, err)
	}
	return &Trace{t, d.dirs.maps, lock}, nil
}

// Stands says whether this is still the datapath that runs: it may have been uninstalled, or
// its tables moved.
func (t *Trace) Stands() bool { return t.Pinned(t.dir) }

// Close ends the trace.
func (t *Trace) Close() error {
	defer unix.Close(t.lock)
	return t.Trace.Close()
}

// lockTrace locks the directory of tables; loads lock the pinPath.
func lockTrace(dir string) (fd int, err error) {
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s to lock it: %w", dir, err)
	}
	err = flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return fd, nil
	}
	defer unix.Close(fd)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return -1, Fault{ErrTraced, holderName(fd) + " follows packets already", "end it, one can at a time"}
	}
	return -1, fmt.Errorf("lock %s: %w", dir, err)
}
