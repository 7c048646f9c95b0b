// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// pod repairs one pod under the lock, which `limits set` takes too.
func (r *reconcile) pod(i maps.Iface) error {
	unlock, err := r.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if r.Datapath.CheckPod(i.Ifindex) != nil {
		if err := r.Datapath.AttachPod(i.Ifindex); err != nil {
			return err
		}
		r.did("attached the programs to %s of %s", i.HostIfName, i.Owner)
	}
	var errs []error
	if i.Flags&maps.PodChained == 0 {
		errs = append(errs, r.hostSide(i))
	}
	return errors.Join(append(errs, r.podRows(i), r.limits(i))...)
}

// hostSide makes the node's side of a veth of ours what ADD made it.
func (r *reconcile) hostSide(i maps.Iface) error {
	l, err := r.Node.Link(i.Ifindex)
	if err != nil {
		return err
	}
	v6 := slices.ContainsFunc(i.Addrs, netip.Addr.Is6)
	if !l.Up {
		if err := r.Node.SetUp(i.Ifindex); err != nil {
			return err
		}
		r.did("set %s of %s up", l.Name, i.Owner)
	}
	if mac := hardwareAddr(i.Owner, "host"); !bytes.Equal(l.MAC, mac) {
		if err := r.Node.SetMAC(i.Ifindex, mac); err != nil {
			return err
		}
		r.did("gave %s of %s its MAC address back", l.Name, i.Owner)
	}
	if err := r.sysctls(i, v6); err != nil {
		return err
	}
	return r.routes(i)
}

func (r *reconcile) sysctls(i maps.Iface, v6 bool) error {
	list := append(hostSysctls(i.HostIfName, v6), netdev.ForwardingOf(i.HostIfName, false))
	if v6 {
		list = append(list, netdev.ForwardingOf(i.HostIfName, true))
	}
	for _, s := range list {
		now, err := s.Get()
		if err != nil && s.Optional {
			continue
		}
		if err == nil && now != s.Value {
			err = s.Set()
			r.did("set sysctl %s to %s again", s.Path, s.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// routes comes after sysctls and the device: one that goes down, or loses its IPv6, takes
// routes and neighbours along.
func (r *reconcile) routes(i maps.Iface) error {
	routes, err1 := r.Node.Routes(i.Ifindex)
	neighbours, err2 := r.Node.Neighbours(i.Ifindex)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, addr := range i.Addrs {
		if !hasRoute(routes, hostRoute(addr)) {
			if err := r.Node.ReplaceRoute(i.Ifindex, hostRoute(addr)); err != nil {
				return err
			}
			r.did("set the route to %s of %s again", addr, i.Owner)
		}
		row, err := r.Datapath.Maps.Pods.Get(addr)
		if err != nil || slices.ContainsFunc(neighbours, func(n netdev.Neighbour) bool { return n.Addr == addr && bytes.Equal(n.MAC, row.MAC) }) {
			continue
		}
		if err := r.Node.SetNeighbour(i.Ifindex, netdev.Neighbour{Addr: addr, MAC: row.MAC}); err != nil {
			return err
		}
		r.did("set the neighbour entry of %s of %s again", addr, i.Owner)
	}
	return nil
}

// podRows writes the rows of addresses that are missing: somebody deleted them.
func (r *reconcile) podRows(i maps.Iface) error {
	table := r.Datapath.Maps.Pods
	for _, addr := range i.Addrs {
		_, err := table.Get(addr)
		if err == nil {
			continue // if it is another's: CHECK tells, and one of them has to go
		}
		if !errors.Is(err, maps.ErrNotFound) {
			return err
		}
		mac, hostMAC, err := r.macs(i)
		if err == nil {
			err = table.Put(podRow(i, addr, mac, hostMAC))
		}
		if err != nil {
			return err
		}
		r.did("wrote the row of address %s of %s again", addr, i.Owner)
	}
	return nil
}

func (r *reconcile) macs(i maps.Iface) (pod, host net.HardwareAddr, err error) {
	p, err := openLive(r.Deps, i)
	if err != nil {
		return nil, nil, err
	}
	defer p.close()
	outside, err := r.Node.Link(i.Ifindex)
	if err != nil {
		return nil, nil, err
	}
	inside, err := p.pod.Link(p.podIndex)
	return inside.MAC, outside.MAC, err
}

// limits makes the shapers what the rows say.
func (r *reconcile) limits(i maps.Iface) error {
	var p *live
	for _, dir := range []maps.Direction{maps.Ingress, maps.Egress} {
		row, err := r.Datapath.Maps.Limits.Get(i.Ifindex, dir)
		if errors.Is(err, maps.ErrNotFound) || err == nil && row.Rate == 0 {
			continue
		}
		if err == nil && p == nil {
			if p, err = openLive(r.Deps, i); err == nil {
				defer p.close()
			}
		}
		if err != nil {
			return err
		}
		now, err := p.shaper(dir)
		if err != nil {
			return err
		}
		if now.Ours && sameLimit(row, now) == nil {
			continue
		}
		rate := Rate{row.Rate, row.Burst}
		if err := p.shape(dir, rate.shaper(i.MTU, row.Shaper)); err != nil {
			return err
		}
		r.did("set the %s shaper of %s again (%d bit/s)", dir, i.Owner, row.Rate)
	}
	return nil
}

// shaper reads the one that stands on the end that sends.
func (p *live) shaper(dir maps.Direction) (netdev.ShaperState, error) {
	if dir == maps.Egress {
		return p.pod.ReadShaper(p.podIndex)
	}
	return p.Node.ReadShaper(p.row.Ifindex)
}
