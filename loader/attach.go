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
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// loIfindex is the index of lo in every network namespace.
const loIfindex = 1

// hook is a place for one of our programs on a kind of device.
type hook struct {
	device  string // pod, uplink, tunnel, lo or cgroup
	program string
	egress  bool
}

func podHooks() []hook {
	return []hook{{"pod", bpf.DatapathProgFromPod, false}, {"pod", bpf.DatapathProgToPod, true}}
}

func uplinkHooks() []hook {
	return []hook{{"uplink", bpf.DatapathProgFromUplink, false}, {"uplink", bpf.DatapathProgToUplink, true}}
}

func tunnelHooks() []hook {
	return []hook{{"tunnel", bpf.DatapathProgFromTunnel, false}, {"tunnel", bpf.DatapathProgToTunnel, true}}
}

func hostHooks() []hook { return []hook{{"lo", bpf.DatapathProgFromHost, true}} }

func socketHook() hook { return hook{"cgroup", bpf.DatapathProgFromSocket, true} }

func allHooks() []hook {
	return slices.Concat(podHooks(), uplinkHooks(), tunnelHooks(), hostHooks(), []hook{socketHook()})
}

// programs are the names of all programs, which are also their pins.
func programs() []string {
	var names []string
	for _, h := range allHooks() {
		names = append(names, h.program)
	}
	return names
}

// AttachPod attaches from_pod and to_pod to the host side of a pod's veth; do it before
// the device is up. It is idempotent.
func (d *Datapath) AttachPod(ifindex int) error {
	return d.attach(podHooks(), ifindex)
}

// DetachPod removes what the deletion of the veth leaves: the pins of tcx links, if
// any. It is no error that there are none.
func (d *Datapath) DetachPod(ifindex int) error {
	var errs []error
	for _, h := range podHooks() {
		errs = append(errs, removePin(d.linkPin(h, ifindex)))
	}
	return errors.Join(errs...)
}

// CheckPod says, by an error, which program is missing on a pod's veth. It changes
// nothing.
func (d *Datapath) CheckPod(ifindex int) error { return d.check(podHooks(), ifindex) }

// AttachUplink attaches from_uplink and to_uplink to a device. Once they are there,
// every further call costs a few system calls.
func (d *Datapath) AttachUplink(ifindex int) error {
	return d.attachShared(uplinkHooks(), ifindex)
}

// CheckUplink is CheckPod for an uplink.
func (d *Datapath) CheckUplink(ifindex int) error { return d.check(uplinkHooks(), ifindex) }

// AttachHost attaches from_host to lo, and from_socket if loopback says that a hostPort is
// open there: call it after a hostPort row was claimed. Before
// that it runs enable, which may be nil, under the same lock: for what must hold as
// long as from_host is attached. It is idempotent.
func (d *Datapath) AttachHost(loopback bool, enable func() error) error {
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if enable != nil {
		if err := enable(); err != nil {
			return err
		}
	}
	if loopback {
		if err := d.attachSockets(); err != nil {
			return err
		}
	}
	return d.attach(hostHooks(), loIfindex)
}

// DetachHost detaches from_host from lo and runs disable, which may be nil, unless a
// row is left in hostports: that is looked at under the lock which AttachHost takes
// after its caller's claim, so neither of two parallel runs undoes the other's work.
func (d *Datapath) DetachHost(disable func() error) error {
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if any, err := d.Maps.Hostports.Any(); err != nil || any {
		return err
	}
	for _, h := range hostHooks() {
		if err := errors.Join(d.detachTCX(h, loIfindex), d.detachClsact(h, loIfindex)); err != nil {
			return err
		}
	}
	if err := d.DetachSockets(); err != nil {
		return err
	}
	if disable != nil {
		return disable()
	}
	return nil
}

// CheckHost is CheckPod for lo.
func (d *Datapath) CheckHost() error { return d.check(hostHooks(), loIfindex) }

// attachShared takes the lock only if something is missing.
func (d *Datapath) attachShared(hooks []hook, ifindex int) error {
	if d.check(hooks, ifindex) == nil && d.wanted(hooks, ifindex) {
		return nil
	}
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.sweep(); err != nil {
		d.opts.Log.Warn("stale pins stay", "error", err)
	}
	return d.attach(hooks, ifindex)
}

// detachShared takes the programs off by whichever way they are attached.
func (d *Datapath) detachShared(hooks []hook, ifindex int) error {
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, h := range hooks {
		errs = append(errs, d.detachTCX(h, ifindex), d.detachClsact(h, ifindex))
	}
	return errors.Join(errs...)
}

// attach attaches by the way that the mode asks for and takes what another mode left
// there away, in this order, so that the hook is never bare: a packet that meets both
// is ours in the first and nobody's in the second.
func (d *Datapath) attach(hooks []hook, ifindex int) error {
	for _, h := range hooks {
		tcx, err := d.byTCX(h)
		if err != nil {
			return err
		}
		if tcx {
			err = errors.Join(d.attachTCX(h, ifindex), d.detachClsact(h, ifindex))
		} else {
			err = errors.Join(d.attachClsact(h, ifindex), d.detachTCX(h, ifindex))
		}
		if err != nil {
			return fmt.Errorf("attach %s to iface %d: %w", h.program, ifindex, err)
		}
	}
	return nil
}

// byTCX says how a hook is to be attached.
func (d *Datapath) byTCX(h hook) (bool, error) {
	if d.opts.Attach == AttachClsact || d.opts.Attach == AttachAuto && h.device == "pod" {
		return false, nil
	}
	config, err := d.Maps.Config.Get()
	if err != nil {
		return false, err
	}
	if config.Features&maps.FeatureTCX != 0 {
		return true, nil
	}
	if d.opts.Attach == AttachTCX {
		return false, noTCX()
	}
	return false, nil
}

// wanted says whether what is attached is attached by the way that the mode asks for.
func (d *Datapath) wanted(hooks []hook, ifindex int) bool {
	for _, h := range hooks {
		tcx, err := d.byTCX(h)
		if err != nil || tcx != exists(d.linkPin(h, ifindex)) {
			return false
		}
		if !tcx && h.device != "pod" && !exists(d.mark(h, ifindex)) { // somebody deleted it
			return false
		}
	}
	return true
}

func (d *Datapath) check(hooks []hook, ifindex int) error {
	for _, h := range hooks {
		on, err := d.tcxAttached(h, ifindex)
		if err == nil && !on {
			on, err = d.opts.Netlink.HasClsact(ifindex, h.egress)
		}
		if err != nil {
			return fmt.Errorf("check %s on iface %d: %w", h.program, ifindex, err)
		}
		if !on {
			return fmt.Errorf("check %s on iface %d: not attached", h.program, ifindex)
		}
	}
	return nil
}

func (d *Datapath) program(h hook) (*ebpf.Program, error) {
	prog, err := ebpf.LoadPinnedProgram(filepath.Join(d.dirs.progs, h.program), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notLoaded(d.opts.PinPath)
	}
	if err != nil {
		return nil, fmt.Errorf("open program: %w", err)
	}
	return prog, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func gone(err error) bool { return errors.Is(err, unix.ENODEV) }
