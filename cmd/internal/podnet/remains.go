// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// clean takes away everything of an owner but its addresses. found says whether there
// was anything. It goes on after an error.
func (d *Deps) clean(o maps.Owner) (found bool, err error) {
	rows, err := d.rowsOf(o)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, row := range rows {
		errs = append(errs, d.remove(row))
	}
	link, err := d.leftover(o)
	if err != nil || link.Index == 0 {
		return len(rows) > 0, errors.Join(append(errs, err)...)
	}
	errs = append(errs, d.Node.DeleteLink(link.Index))
	if d.Datapath != nil {
		errs = append(errs, d.dropState(maps.Iface{Ifindex: link.Index}))
	}
	return true, errors.Join(errs...)
}

// rowsOf lists the rows of ifaces that an owner has: one, or after a crash more.
func (d *Deps) rowsOf(o maps.Owner) ([]maps.Iface, error) {
	if d.Datapath == nil {
		return nil, nil
	}
	var rows []maps.Iface
	for row, err := range d.Datapath.Maps.Ifaces.All() {
		if err != nil {
			return nil, err
		}
		if row.Owner == o {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// remove takes an attachment away: first what packets are led by, then the veth, then
// what its programs may have written to until it was gone, and last the row that names
// it, unless something is left to be found by it.
func (d *Deps) remove(i maps.Iface) error {
	if i.Flags&maps.PodChained != 0 {
		return d.removeChained(i)
	}
	err := errors.Join(d.dropRoutes(i), d.deleteVeth(i), d.dropState(i))
	if err != nil {
		return err
	}
	return d.Datapath.Maps.Ifaces.Delete(i.Ifindex)
}

// dropRoutes deletes the rows that lead packets to an attachment.
func (d *Deps) dropRoutes(i maps.Iface) error {
	ports, err := d.hostportsOf(i)
	errs := []error{err, d.releaseHostports(ports)}
	for _, addr := range i.Addrs {
		errs = append(errs, d.deletePod(addr, i.Generation))
	}
	if len(ports) > 0 || d.hostOpen() {
		errs = append(errs, d.closeHost())
	}
	return errors.Join(errs...)
}

// dropState deletes what is kept by the number of a device.
func (d *Deps) dropState(i maps.Iface) error {
	m := d.Datapath.Maps
	return errors.Join(
		d.Datapath.DetachPod(i.Ifindex),
		m.Limits.Delete(i.Ifindex, maps.Ingress),
		m.Limits.Delete(i.Ifindex, maps.Egress),
		m.Counters.DeleteIfindex(i.Ifindex),
	)
}

// deleteVeth deletes the device of a row, if it is the row's: a number or a name alone
// may be another's by now.
func (d *Deps) deleteVeth(i maps.Iface) error {
	link, err := d.Node.Link(i.Ifindex)
	if errors.Is(err, unix.ENODEV) || err == nil && link.Name != i.HostIfName {
		return nil
	}
	if err != nil {
		return err
	}
	return d.Node.DeleteLink(i.Ifindex)
}

// leftover finds an owner's veth by its name alone: bpffs was lost, or ADD was killed
// before it could write a row. The zero Link if there is none.
func (d *Deps) leftover(o maps.Owner) (netdev.Link, error) {
	link, err := d.Node.LinkNamed(HostName(o))
	if errors.Is(err, unix.ENODEV) {
		return netdev.Link{}, nil
	}
	if err != nil {
		return netdev.Link{}, err
	}
	if link.Kind != "veth" {
		return netdev.Link{}, fmt.Errorf("clean remains of %s: device %s is a %s, not ours", o, link.Name, link.Kind)
	}
	if d.Datapath == nil {
		return link, nil
	}
	row, err := d.Datapath.Maps.Ifaces.Get(link.Index)
	switch {
	case errors.Is(err, maps.ErrNotFound):
		return link, nil
	case err != nil:
		return netdev.Link{}, err
	case row.Owner != o:
		return netdev.Link{}, fmt.Errorf("clean remains of %s: device %s is of %s", o, link.Name, row.Owner)
	}
	return link, nil
}

// holder says whose a row is that carries ifindex and generation, and whether that
// attachment may be alive. It is dead when its veth is gone, as this goes with the pod's
// namespace, or when the namespace is gone from where the runtime kept it: the kernel
// takes the veth away a while later.
func (d *Deps) holder(ifindex int, generation uint64) (maps.Owner, bool) {
	row, err := d.Datapath.Maps.Ifaces.Get(ifindex)
	if errors.Is(err, maps.ErrNotFound) || err == nil && row.Generation != generation {
		return maps.Owner{}, false
	}
	if err != nil {
		return maps.Owner{}, true
	}
	return row.Owner, d.alive(row)
}

// alive is false only for what is provably dead.
func (d *Deps) alive(i maps.Iface) bool {
	link, err := d.Node.Link(i.Ifindex)
	if errors.Is(err, unix.ENODEV) || err == nil && !isDeviceOf(link, i) {
		return false
	}
	return netdev.MayLive(i.NetnsPath, i.Netns)
}
