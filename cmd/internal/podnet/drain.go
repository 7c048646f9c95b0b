// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/culvert-cni/culvert/maps"
)

// A network's range changes while it has pods: those of the old range go on as they are, and so
// others go on seeing their addresses, until the last of them is gone. Its DEL takes the range
// off the list, if its configuration tells what the ranges are by now; else the next ADD does.

// drained gives those of the rows that no pod is left in. One that a listed range holds as
// well needs no other. An attachment without addresses is being made, of a range that we do
// not know. o's own addresses do not count: it is the one that is made, or that goes.
func (d *Deps) drained(stale []maps.Cidr, listed []netip.Prefix, o maps.Owner) ([]maps.Cidr, error) {
	if len(stale) == 0 {
		return nil, nil
	}
	for i, err := range d.Datapath.Maps.Ifaces.All() {
		if err != nil {
			return nil, err
		}
		if i.Network != o.Network || i.Owner == o {
			continue
		}
		if len(i.Addrs) == 0 {
			return nil, nil
		}
		for _, addr := range i.Addrs {
			if holds(listed, addr) {
				continue
			}
			stale = slices.DeleteFunc(stale, func(r maps.Cidr) bool { return r.Prefix.Contains(addr) })
		}
	}
	return stale, nil
}

func holds(list []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// leaving gives the ranges on the list that an attachment which is about to go may be the last
// of: those of its own addresses that the configuration does not name. Of another range it
// knows nothing: a runtime may call DEL with an old configuration.
func (d *Deps) leaving(o maps.Owner) ([]netip.Prefix, error) {
	if d.Datapath == nil || len(d.OwnRanges) == 0 {
		return nil, nil
	}
	listed := toCidrs(d.OwnRanges)
	var ranges []netip.Prefix
	for row, err := range d.Datapath.Maps.Nonmasq.All() {
		if err != nil {
			return nil, err
		}
		if slices.Contains(row.Networks, o.Network) && !slices.Contains(listed, row.Prefix) {
			ranges = append(ranges, row.Prefix)
		}
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	rows, err := d.rowsOf(o)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ranges, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(rows, func(i maps.Iface) bool { return slices.ContainsFunc(i.Addrs, p.Contains) })
	}), nil
}

// left takes ranges off the list that an attachment was the last of. An ADD that owns its iface
// since we looked is seen, since that comes before its list.
func (d *Deps) left(o maps.Owner, ranges []netip.Prefix) error {
	if len(ranges) == 0 {
		return nil
	}
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	table := d.Datapath.Maps.Nonmasq
	rows, err := maps.Collect(table.All())
	if err != nil {
		return err
	}
	var stale []maps.Cidr
	var others []netip.Prefix // on the list, whatever the configuration says
	for _, r := range rows {
		switch {
		case !slices.Contains(r.Networks, o.Network):
		case slices.Contains(ranges, r.Prefix):
			stale = append(stale, r)
		default:
			others = append(others, r.Prefix)
		}
	}
	if rows, err = d.drained(stale, others, o); err != nil {
		return err
	}
	var errs []error
	for _, row := range rows {
		errs = append(errs, writeCidr(table, without(row, o.Network)))
	}
	return errors.Join(errs...)
}
