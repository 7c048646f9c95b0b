// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/maps"
)

// attachment is one entry among the links.
type attachment struct {
	hook    hook
	ifindex int
	clsact  bool // a mark, else a pinned tcx link
	path    string
}

// Uplinks lists the devices that carry our programs for uplinks, in order.
func (d *Datapath) Uplinks() ([]int, error) {
	uplinks, _, err := d.Carriers()
	return uplinks, err
}

// Sweep removes the pins of links whose device is gone. It is idempotent.
func (d *Datapath) Sweep() error {
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return d.sweep()
}

func (d *Datapath) sweep() error {
	list, err := attachments(d.dirs)
	errs := []error{err}
	for _, a := range list {
		if a.stale() {
			errs = append(errs, removePin(a.path))
		}
	}
	return errors.Join(errs...)
}

// replaceAttached puts the programs just loaded in the place of those that run: links
// by update, filters by replacement, so no packet passes without. A device that is gone
// is passed over.
func replaceAttached(opts Options, dirs dirs, coll *ebpf.Collection, set *maps.Set) error {
	list, err := attachments(dirs)
	if err != nil {
		return err
	}
	for _, a := range list {
		prog := coll.Programs[a.hook.program]
		switch {
		case a.stale():
			err = removePin(a.path)
		case a.clsact:
			err = opts.Netlink.AttachClsact(a.ifindex, a.hook.egress, prog.FD(), filterName(a.hook, opts.PinPath))
		default:
			err = updateLink(a.path, prog)
		}
		if err != nil && !gone(err) {
			return fmt.Errorf("replace %s on iface %d: %w", a.hook.program, a.ifindex, err)
		}
	}
	for i, err := range set.Ifaces.All() {
		if err != nil {
			return err
		}
		if err := replacePod(opts, coll, i.Ifindex); err != nil {
			return err
		}
	}
	return nil
}

// replacePod replaces filters only where ours are: the row may be left from a pod whose
// ifindex another device has by now.
func replacePod(opts Options, coll *ebpf.Collection, ifindex int) error {
	for _, h := range podHooks() {
		ours, err := opts.Netlink.HasClsact(ifindex, h.egress)
		if err == nil && ours {
			err = opts.Netlink.AttachClsact(ifindex, h.egress, coll.Programs[h.program].FD(), filterName(h, opts.PinPath))
		}
		if err != nil && !gone(err) {
			return fmt.Errorf("replace %s on iface %d: %w", h.program, ifindex, err)
		}
	}
	return nil
}

func updateLink(pin string, prog *ebpf.Program) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Update(prog)
}

// attachments reads the directory of links. Names that are not ours are passed over.
func attachments(dirs dirs) ([]attachment, error) {
	entries, err := os.ReadDir(dirs.links)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var list []attachment
	for _, e := range entries {
		if a, ok := parseLinkName(e.Name()); ok {
			a.path = filepath.Join(dirs.links, e.Name())
			list = append(list, a)
		}
	}
	return list, nil
}

// parseLinkName is the reverse of linkName.
func parseLinkName(name string) (attachment, bool) {
	base, clsact := strings.CutSuffix(name, "_clsact")
	ifindex := loIfindex
	if parts := strings.Split(base, "_"); len(parts) == 3 {
		var err error
		if ifindex, err = strconv.Atoi(parts[1]); err != nil || ifindex <= 0 {
			return attachment{}, false
		}
	}
	for _, h := range allHooks() {
		if linkName(h, ifindex) == base {
			return attachment{hook: h, ifindex: ifindex, clsact: clsact}, true
		}
	}
	return attachment{}, false
}

// stale says that the device is gone for certain.
func (a attachment) stale() bool {
	if a.clsact {
		return !deviceExists(a.ifindex)
	}
	device, err := linkDevice(a.path)
	return err == nil && device == 0
}

// deviceExists is true also when it cannot be known.
func deviceExists(ifindex int) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("")
	if err != nil {
		return true
	}
	req.SetUint32(uint32(ifindex))
	return !gone(unix.IoctlIfreq(fd, unix.SIOCGIFNAME, req))
}
