// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"net/netip"

	"github.com/culvert-cni/culvert/maps"
)

func (s *setup) writeLimits(context.Context) error {
	table := s.Datapath.Maps.Limits
	for _, l := range s.limits() {
		s.undo.push("limit", func() error { return table.Delete(l.Ifindex, l.Direction) })
		if err := table.Put(l); err != nil {
			return err
		}
	}
	return nil
}

func (s *setup) limits() []maps.Limit {
	var rows []maps.Limit
	if s.Ingress.Rate > 0 {
		rows = append(rows, s.Ingress.limit(s.toPod, s.link.Index, maps.Ingress, s.shaper))
	}
	if s.Egress.Rate > 0 {
		rows = append(rows, s.Egress.limit(s.fromPod, s.link.Index, maps.Egress, s.shaper))
	}
	return rows
}

func (s *setup) flags() maps.PodFlags {
	flags := s.kept &^ maps.PodOwnClsact
	if s.SourceCheck {
		flags |= maps.PodSourceCheck
	}
	if s.Ingress.Rate > 0 {
		flags |= maps.PodLimitIngress
	}
	if s.Egress.Rate > 0 {
		flags |= maps.PodLimitEgress
	}
	if s.Masquerade {
		flags |= maps.PodMasquerade
	}
	return flags
}

// writePods writes a row an address; first the addresses go where DEL finds the rows by
// them. A row that is there is of a pod that went without DEL, or else two pods got one
// address, and the first keeps it.
func (s *setup) writePods(context.Context) error {
	m := s.Datapath.Maps
	s.iface.Addrs, s.iface.Flags = s.layout.list(), s.kept|s.flags()
	if err := m.Ifaces.Put(s.iface); err != nil {
		return err
	}
	for _, addr := range s.layout.list() {
		old, err := m.Pods.Get(addr)
		if err == nil {
			if holder, alive := s.holder(old.Ifindex, old.Generation); alive {
				return addressHeld(addr, holder)
			}
		} else if !errors.Is(err, maps.ErrNotFound) {
			return err
		}
		s.undo.push("pod", func() error { return s.deletePod(addr, s.generation) })
		err = m.Pods.Put(maps.Pod{
			Addr: addr, Generation: s.generation, Ifindex: s.link.Index, Flags: s.flags(),
			Netns: s.Netns.Inode, MTU: s.MTU, MAC: s.mac, HostMAC: s.hostMAC,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deletePod deletes an address's row if it is of that generation. Who gets the address
// next gets it from the IPAM plugin, so after this.
func (d *Deps) deletePod(addr netip.Addr, generation uint64) error {
	row, err := d.Datapath.Maps.Pods.Get(addr)
	if errors.Is(err, maps.ErrNotFound) || err == nil && row.Generation != generation {
		return nil
	}
	if err != nil {
		return err
	}
	return d.Datapath.Maps.Pods.Delete(addr)
}
