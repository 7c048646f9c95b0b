// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-cni/culvert/maps"
)

// Ranges of addresses belong to networks, not to attachments: each ADD makes the lists what
// its configuration says, and they go with the network's last attachment. While nothing
// changes neither takes the lock. Where the list is the ranges that the pods' own addresses
// are of, one that the configuration has no more stays until its last pod is gone (drain.go).

// cidrList is one table and what the configuration of an ADD names of it.
type cidrList struct {
	table *maps.Cidrs
	names []netip.Prefix
	drain bool
}

// cidrLists leaves out nonmasq where the network does not masquerade: pods that it has from
// a time when it did go on by the list of that time.
func (d *Deps) cidrLists(spec Spec) []cidrList {
	lists := []cidrList{{d.Datapath.Maps.Excluded, spec.Exclude, false}}
	if spec.Masquerade {
		lists = append(lists, cidrList{d.Datapath.Maps.Nonmasq, spec.NonMasquerade, spec.NonMasqueradeOwn})
	}
	for i := range lists {
		lists[i].names = toCidrs(lists[i].names)
	}
	return lists
}

// listRanges comes after ownIface: whoever is about to take the network off the lists looks
// for its attachments once more when that is done (releaseNetworks).
func (s *setup) listRanges(context.Context) error {
	for _, l := range s.cidrLists(s.Spec) {
		changes, err := s.changes(l, s.Owner)
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			continue
		}
		if err := s.rewrite(l); err != nil {
			return err
		}
	}
	return nil
}

func (s *setup) rewrite(l cidrList) error {
	unlock, err := s.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	changes, err := s.changes(l, s.Owner)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := writeCidr(l.table, c); err != nil {
			return fmt.Errorf("list ranges of network %s: %w", s.Network, err)
		}
	}
	return nil
}

// changes are the rows that have to be written for the network of o to be named by those of
// its list, by those that are drained, and no others.
func (d *Deps) changes(l cidrList, o maps.Owner) ([]maps.Cidr, error) {
	missing := slices.Clone(l.names)
	var out, stale []maps.Cidr
	for row, err := range l.table.All() {
		if err != nil {
			return nil, err
		}
		named := slices.Contains(row.Networks, o.Network)
		wanted := slices.Contains(l.names, row.Prefix)
		missing = slices.DeleteFunc(missing, func(p netip.Prefix) bool { return p == row.Prefix })
		switch {
		case wanted && !named:
			row.Networks = append(row.Networks, o.Network)
			out = append(out, row)
		case named && !wanted:
			stale = append(stale, row)
		}
	}
	for _, p := range missing {
		out = append(out, maps.Cidr{Prefix: p, Networks: []string{o.Network}})
	}
	if l.drain {
		var err error
		if stale, err = d.drained(stale, l.names, o); err != nil {
			return nil, err
		}
	}
	for _, row := range stale {
		out = append(out, without(row, o.Network))
	}
	return out, nil
}

func without(row maps.Cidr, networks ...string) maps.Cidr {
	row.Networks = slices.DeleteFunc(slices.Clone(row.Networks), func(n string) bool { return slices.Contains(networks, n) })
	return row
}

// writeCidr writes a row, or deletes one that no network is left in.
func writeCidr(table *maps.Cidrs, row maps.Cidr) error {
	if len(row.Networks) == 0 {
		return table.Delete(row.Prefix)
	}
	return table.Put(row)
}

// toCidrs gives the ranges in the tables' spelling, each once.
func toCidrs(ranges []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(ranges))
	for _, p := range ranges {
		out = append(out, maps.ToCidr(p))
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// ranges checks that the network is on its lists. Which ranges, another ADD may have
// changed since: that its configuration is another one is not this pod's fault.
func (c *check) ranges() error {
	for _, l := range c.cidrLists(c.Spec) {
		if len(l.names) == 0 {
			continue
		}
		rows, err := maps.Collect(l.table.All())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(rows, func(r maps.Cidr) bool { return slices.Contains(r.Networks, c.Network) }) {
			return fmt.Errorf("check %s: no range of network %s is there", l.table.Name(), c.Network)
		}
	}
	return nil
}

// releaseNetworks takes a network, "" for every one, off the lists if it has no attachment,
// and the uplinks that it alone wanted. It is called after a row of ifaces was deleted.
func (d *Deps) releaseNetworks(network string) error {
	return errors.Join(d.releaseRanges(network), d.releaseUplinks(network))
}

// releaseRanges reads no large table unless the lists name the network.
func (d *Deps) releaseRanges(network string) error {
	dead, err := d.listedDead(network)
	if err != nil || len(dead) == 0 {
		return err
	}
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if dead, err = d.listedDead(network); err != nil || len(dead) == 0 {
		return err
	}
	return d.dropNetworks(dead)
}

// dropNetworks does it, then looks again: an ADD that owns its iface since we looked may
// have found its ranges listed before they went, and have written nothing.
func (d *Deps) dropNetworks(dead []string) error {
	type change struct {
		table *maps.Cidrs
		was   maps.Cidr
	}
	var dropped []change
	for _, table := range []*maps.Cidrs{d.Datapath.Maps.Nonmasq, d.Datapath.Maps.Excluded} {
		rows, err := maps.Collect(table.All())
		if err != nil {
			return err
		}
		for _, row := range rows {
			left := without(row, dead...)
			if len(left.Networks) == len(row.Networks) {
				continue
			}
			if err := writeCidr(table, left); err != nil {
				return err
			}
			dropped = append(dropped, change{table, row})
		}
	}
	still, err := d.unattached(dead)
	if err != nil || len(still) == len(dead) {
		return err
	}
	var errs []error
	for _, c := range dropped {
		errs = append(errs, writeCidr(c.table, without(c.was, still...)))
	}
	return errors.Join(errs...)
}

// listedDead are the networks that the lists name and that have no attachment.
func (d *Deps) listedDead(network string) ([]string, error) {
	var names []string
	for _, table := range []*maps.Cidrs{d.Datapath.Maps.Nonmasq, d.Datapath.Maps.Excluded} {
		for row, err := range table.All() {
			if err != nil {
				return nil, err
			}
			names = append(names, row.Networks...)
		}
	}
	if network != "" {
		names = slices.DeleteFunc(names, func(n string) bool { return n != network })
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	return d.unattached(slices.Compact(names))
}

// unattached gives those of the networks that no row of ifaces is of. It ends with the
// last one found.
func (d *Deps) unattached(networks []string) ([]string, error) {
	left := slices.Clone(networks)
	for row, err := range d.Datapath.Maps.Ifaces.All() {
		if err != nil {
			return nil, err
		}
		if left = slices.DeleteFunc(left, func(n string) bool { return n == row.Network }); len(left) == 0 {
			break
		}
	}
	return left, nil
}
