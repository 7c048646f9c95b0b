// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotNamespace says that a path leads to something else than a network namespace.
var ErrNotNamespace = errors.New("not a network namespace")

// Namespace is an open network namespace; it lives at least as long as it is open.
type Namespace struct {
	Path  string
	Inode uint64

	dev  uint64
	file *os.File
}

// OpenNamespace opens the namespace at path. Errors wrap fs.ErrNotExist or
// ErrNotNamespace where that is the matter.
func OpenNamespace(path string) (*Namespace, error) {
	// Not blocking: the path might name a FIFO.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) { // a socket
		return nil, fmt.Errorf("open %s: %w", path, ErrNotNamespace)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	var st unix.Stat_t
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	if err != nil || kind != unix.CLONE_NEWNET {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", path, ErrNotNamespace)
	}
	return &Namespace{Path: path, Inode: st.Ino, dev: uint64(st.Dev), file: f}, nil
}

// MayLive says whether the namespace at path may be the one of that inode still: what cannot
// be proved gone may.
func MayLive(path string, inode uint64) bool {
	ns, err := OpenNamespace(path)
	switch {
	case err == nil:
		defer ns.Close()
		return ns.Inode == inode
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, ErrNotNamespace):
		return false
	}
	return true
}

// Close releases the descriptor.
func (n *Namespace) Close() error { return n.file.Close() }

// IsOurs says whether it is the namespace that this process runs in.
func (n *Namespace) IsOurs() (bool, error) {
	ours, err := OpenNamespace("/proc/self/ns/net")
	if err != nil {
		return false, err
	}
	defer ours.Close()
	return ours.Inode == n.Inode && ours.dev == n.dev, nil
}

// Do runs f with its thread inside the namespace: for /proc/sys/net, which shows each
// thread its own. The thread is not used for anything else afterwards.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", n.Path, err)
			return
		}
		done <- f()
	}()
	return <-done
}

func (n *Namespace) fd() int { return int(n.file.Fd()) }
