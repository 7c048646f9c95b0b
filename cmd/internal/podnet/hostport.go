// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"

	"github.com/culvert-cni/culvert/maps"
)

// claimHostports claims a row for each hostPort, one alone or none: whoever comes second
// is told who holds it. Then the node's own way to hostPorts is opened.
func (s *setup) claimHostports(context.Context) error {
	rows := s.hostportRows()
	if len(rows) == 0 {
		return nil
	}
	s.undo.push("node's hostPorts", func() error { return s.closeHost() })
	s.undo.push("hostPorts", func() error { return s.releaseHostports(rows) })
	for i, row := range rows {
		err := s.Datapath.Maps.Hostports.Claim(row)
		if errors.Is(err, maps.ErrExists) {
			err = s.takeOver(rows[i:])
			if err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return s.openHost()
}

// hostportRows are the rows to claim. A hostIP of a family that the pod lacks maps
// nothing.
func (s *setup) hostportRows() []maps.Hostport {
	var rows []maps.Hostport
	for _, p := range s.Hostports {
		row := maps.Hostport{
			Addr: p.Addr, Port: p.Port, Proto: p.Proto, PodPort: p.PodPort,
			Generation: s.generation, Ifindex: s.link.Index, Loopback: s.Loopback,
		}
		if !p.Addr.Is6() {
			row.Pod4 = s.layout.first(false)
		}
		if !p.Addr.Is4() {
			row.Pod6 = s.layout.first(true)
		}
		if row.Pod4.IsValid() || row.Pod6.IsValid() {
			rows = append(rows, row)
		}
	}
	return rows
}

// takeOver claims rows where some are held, and replaces those of holders that are dead.
// It is done under the lock, as is every delete, so that of two who come for one row one
// wins, and a late DEL of the dead holder does not take the winner's.
func (s *setup) takeOver(rows []maps.Hostport) error {
	unlock, err := s.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	table := s.Datapath.Maps.Hostports
	dead := map[uint64]bool{} // by generation: who had one port had others
	for _, row := range rows {
		err := table.Claim(row)
		if errors.Is(err, maps.ErrExists) {
			err = s.replaceDead(row, dead)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *setup) replaceDead(row maps.Hostport, dead map[uint64]bool) error {
	table := s.Datapath.Maps.Hostports
	old, err := table.Get(row.Addr, row.Port, row.Proto)
	if err != nil {
		return err
	}
	if !dead[old.Generation] {
		if holder, alive := s.holder(old.Ifindex, old.Generation); alive {
			return HeldError{What: row.Key().String(), Holder: holder, Port: true}
		}
		dead[old.Generation] = true
		s.Log.Info("replaced dead holder", "hostport", row.Key().String(), "ifindex", old.Ifindex)
	}
	return table.Replace(row)
}

// releaseHostports deletes rows that are still of their generation.
func (d *Deps) releaseHostports(rows []maps.Hostport) error {
	if len(rows) == 0 {
		return nil
	}
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	table := d.Datapath.Maps.Hostports
	var errs []error
	for _, row := range rows {
		now, err := table.Get(row.Addr, row.Port, row.Proto)
		switch {
		case errors.Is(err, maps.ErrNotFound) || err == nil && now.Generation != row.Generation:
		case err != nil:
			errs = append(errs, err)
		default:
			errs = append(errs, table.Delete(row.Key()))
		}
	}
	return errors.Join(errs...)
}

// hostportsOf lists the rows of an attachment.
func (d *Deps) hostportsOf(i maps.Iface) ([]maps.Hostport, error) {
	var rows []maps.Hostport
	for row, err := range d.Datapath.Maps.Hostports.All() {
		if err != nil {
			return nil, err
		}
		if row.Ifindex == i.Ifindex && row.Generation == i.Generation {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
