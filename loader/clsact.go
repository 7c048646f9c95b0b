// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A clsact filter cannot be pinned. That a device which is no pod's carries ours is
// remembered by an empty directory among the links, made before the filter is.
func (d *Datapath) mark(h hook, ifindex int) string { return markPath(d.dirs, h, ifindex) }

func markPath(d dirs, h hook, ifindex int) string {
	return filepath.Join(d.links, linkName(h, ifindex)+"_clsact")
}

func (d *Datapath) attachClsact(h hook, ifindex int) error {
	if h.device != "pod" {
		if err := os.Mkdir(d.mark(h, ifindex), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mark device: %w", err)
		}
	}
	prog, err := d.program(h)
	if err != nil {
		return err
	}
	defer prog.Close()
	return d.opts.Netlink.AttachClsact(ifindex, h.egress, prog.FD(), filterName(h, d.opts.PinPath))
}

// detachClsact removes our filter where there may be one. On a pod's veth there is one
// only if the mode changed during the pod's life; it goes with the veth.
func (d *Datapath) detachClsact(h hook, ifindex int) error {
	mark := d.mark(h, ifindex)
	if h.device == "pod" || !exists(mark) {
		return nil
	}
	if err := d.opts.Netlink.DetachClsact(ifindex, h.egress); err != nil && !gone(err) {
		return err
	}
	return removePin(mark)
}

// filterName tells of a filter what it is and, unless that is the default, which pinPath it
// belongs to: pins that were lost are found again by it. The kernel takes 255 bytes.
func filterName(h hook, pinPath string) string {
	name := "culvert_" + h.program
	if pinPath == DefaultPinPath {
		return name
	}
	name += "@" + pinPath
	return name[:min(len(name), 255)]
}
