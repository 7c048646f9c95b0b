// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// lock serialises those who load, attach to shared devices or upgrade. It is held on
// the directory itself, since bpffs keeps no regular files, and ends with its holder.
func lock(dir string) (unlock func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s to lock it: %w", dir, err)
	}
	for {
		err = unix.Flock(fd, unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { unix.Close(fd) }, nil
}

// Lock keeps every other Ensure, AttachUplink, AttachHost and DetachHost of this
// pinPath waiting until unlock is called; it does not nest.
func (d *Datapath) Lock() (unlock func(), err error) { return lock(d.opts.PinPath) }
