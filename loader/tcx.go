// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// linkName is the pin of a tcx link: uplink_2_in, pod_7_out, lo_out.
func linkName(h hook, ifindex int) string {
	direction := "in"
	if h.egress {
		direction = "out"
	}
	if h.device == "lo" || h.device == "cgroup" {
		return h.device + "_" + direction
	}
	return fmt.Sprintf("%s_%d_%s", h.device, ifindex, direction)
}

func (d *Datapath) linkPin(h hook, ifindex int) string {
	return filepath.Join(d.dirs.links, linkName(h, ifindex))
}

// attachTCX makes a pinned link, ahead of other people's programs: behind one that
// ends the chain ours would see nothing. It leaves a link that is there as it is.
func (d *Datapath) attachTCX(h hook, ifindex int) error {
	if on, err := d.tcxAttached(h, ifindex); err != nil || on {
		return err
	}
	pin := d.linkPin(h, ifindex)
	if err := removePin(pin); err != nil { // of a device that is gone
		return err
	}
	prog, err := d.program(h)
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex, Program: prog, Attach: tcxType(h), Anchor: link.Head(),
	})
	if err != nil {
		return err
	}
	defer l.Close() // unpinned, this detaches
	return l.Pin(pin)
}

func tcxType(h hook) ebpf.AttachType {
	if h.egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// detachTCX detaches the link before it removes the pin, since without its pin it would
// go only when RCU finds the time.
func (d *Datapath) detachTCX(h hook, ifindex int) error { return detachLink(d.linkPin(h, ifindex)) }

// detachLink takes a pinned link away; it is no error that there is none.
func detachLink(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open link %s: %w", pin, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		return fmt.Errorf("detach link %s: %w", pin, err)
	}
	return removePin(pin)
}

// tcxAttached says whether there is a pinned link and its device is the one.
func (d *Datapath) tcxAttached(h hook, ifindex int) (bool, error) {
	device, err := linkDevice(d.linkPin(h, ifindex))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return device == ifindex, err
}

// linkDevice gives the device of a pinned link, 0 when that is gone.
func linkDevice(pin string) (int, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return 0, fmt.Errorf("open link %s: %w", pin, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("read link %s: %w", pin, err)
	}
	tcx := info.TCX()
	if tcx == nil {
		return 0, fmt.Errorf("read link %s: not a tcx link", pin)
	}
	return int(tcx.Ifindex), nil
}
