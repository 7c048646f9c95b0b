// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/maps"
)

// Attachment is one that a runtime calls valid.
type Attachment struct{ Container, IfName string }

// Collected is what GC leaves of a network.
type Collected struct {
	Left []Attachment
	// Partial says that there may be attachments that no row tells of: bpffs was lost.
	Partial bool
}

// GC takes away what network has and valid does not name, and what of other networks is
// provably dead. A nil valid, other than an empty one, says nothing: then of this
// network too only the dead goes. It goes on after an error.
func GC(d *Deps, network string, valid []Attachment) (Collected, error) {
	rows, err := maps.Collect(d.Datapath.Maps.Ifaces.All())
	if err != nil {
		return Collected{Partial: true}, err
	}
	keep := map[Attachment]bool{}
	for _, a := range valid {
		keep[a] = true
	}
	var c Collected
	var errs []error
	for _, row := range rows {
		a := Attachment{row.Container, row.IfName}
		named := row.Network == network && valid != nil
		if named && keep[a] || !named && d.alive(row) {
			if row.Network == network {
				c.Left = append(c.Left, a)
			}
			continue
		}
		d.Log.Info("collected", "network", row.Network, "container", row.Container, "ifname", row.IfName)
		if err := d.remove(row); err != nil {
			errs = append(errs, fmt.Errorf("collect %s: %w", row.Owner, err))
		}
	}
	errs = append(errs, d.sweep())
	c.Partial, err = d.strangers(network, valid)
	return c, errors.Join(append(errs, err)...)
}

// sweep deletes rows that no attachment owns. The attachments are read last: an ADD to
// another network, which may run beside us, writes its own before any other row.
func (d *Deps) sweep() error {
	m := d.Datapath.Maps
	ports, err1 := maps.Collect(m.Hostports.All())
	pods, err2 := maps.Collect(m.Pods.All())
	limits, err3 := maps.Collect(m.Limits.All())
	rows, err4 := maps.Collect(m.Ifaces.All())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	live, owned := map[uint64]bool{}, map[int]bool{}
	for _, row := range rows {
		live[row.Generation], owned[row.Ifindex] = true, true
	}
	var errs []error
	var dead []maps.Hostport
	for _, p := range ports {
		if !live[p.Generation] {
			dead = append(dead, p)
		}
	}
	errs = append(errs, d.releaseHostports(dead))
	for _, p := range pods {
		if !live[p.Generation] {
			errs = append(errs, d.deletePod(p.Addr, p.Generation))
		}
	}
	for _, l := range limits {
		if !owned[l.Ifindex] {
			errs = append(errs, m.Limits.Delete(l.Ifindex, l.Direction))
		}
	}
	return errors.Join(append(errs, d.sweepCounters(owned), d.closeHost(), d.releaseNetworks(""))...)
}

// sweepCounters deletes the counters of devices that are gone: what was under way when a
// namespace ended may have been counted after its DEL.
func (d *Deps) sweepCounters(owned map[int]bool) error {
	rows, err := maps.Collect(d.Datapath.Maps.Counters.All())
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range rows {
		if owned[c.Ifindex] {
			continue
		}
		owned[c.Ifindex] = true // looked at
		if _, err := d.Node.Link(c.Ifindex); errors.Is(err, unix.ENODEV) {
			errs = append(errs, d.Datapath.Maps.Counters.DeleteIfindex(c.Ifindex))
		}
	}
	return errors.Join(errs...)
}
