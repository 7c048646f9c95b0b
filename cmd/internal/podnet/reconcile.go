// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// Known are the names of the uplinks that a network's configuration has, none if it goes by
// the rule; ok is false for a network that the caller does not know.
type Known func(network string) (names []string, ok bool)

// reconcile is one round of repairs. done are sentences about what was amiss.
type reconcile struct {
	*Deps
	known Known
	rows  []maps.Iface // of pods that live
	done  []string
	errs  []error
}

// Reconcile looks at everything that ADDs have made of the node and of its pods, and
// repairs what is amiss. It gives a sentence for each repair, none if all was well, and
// goes on after an error. Who is provably dead goes, unless keep is set: GC does that.
func Reconcile(d *Deps, known Known, keep bool) ([]string, error) {
	r := &reconcile{Deps: d, known: known}
	done, err := d.Rebuild()
	r.done, r.errs = append(r.done, done...), append(r.errs, err)
	for _, part := range []func() error{r.readPods, r.uplinks, r.tunnels, r.node, r.pods, r.masquerade} {
		r.errs = append(r.errs, part())
	}
	if !keep {
		r.errs = append(r.errs, r.collect())
	}
	return r.done, errors.Join(r.errs...)
}

func (r *reconcile) did(format string, a ...any) {
	what := fmt.Sprintf(format, a...)
	r.Log.Warn("repaired", "what", what)
	r.done = append(r.done, what)
}

// readPods lists who lives and is complete.
func (r *reconcile) readPods() error {
	rows, err := maps.Collect(r.Datapath.Maps.Ifaces.All())
	r.rows = slices.DeleteFunc(rows, func(i maps.Iface) bool { return len(i.Addrs) == 0 || !r.alive(i) })
	return err
}

// collect takes away what is provably dead, and rows that nobody owns.
func (r *reconcile) collect() error {
	before, err := maps.Collect(r.Datapath.Maps.Ifaces.All())
	if err != nil {
		return err
	}
	_, err = GC(r.Deps, "", nil)
	for _, i := range before {
		if _, gone := r.Datapath.Maps.Ifaces.Get(i.Ifindex); errors.Is(gone, maps.ErrNotFound) && !r.alive(i) {
			r.did("collected %s, whose network namespace is gone", i.Owner)
		}
	}
	return err
}

// uplinks attaches to devices that have become uplinks and detaches from those that are
// none any more.
func (r *reconcile) uplinks() error {
	wishes, err := r.readWishes()
	if err != nil {
		return err
	}
	unknown, err := r.unknownWishes(wishes)
	if err != nil {
		return err
	}
	names := map[int]string{}
	if on, err := r.Datapath.Uplinks(); err == nil {
		for _, index := range on {
			names[index] = r.nameOf(index)
		}
	}
	attached, detached, err := r.Datapath.SetUplinks(func() ([]int, error) {
		for _, network := range unknown {
			if list, ok := r.known(network); ok {
				if err := r.writeWish(wishOf(network, list)); err != nil {
					return nil, err
				}
			}
		}
		return r.wantedUplinks()
	})
	for _, index := range attached {
		r.did("attached the programs to uplink %s", r.nameOf(index))
	}
	for _, index := range detached {
		r.did("detached the programs from %s, which is no uplink any more", names[index])
	}
	return err
}

func (r *reconcile) nameOf(index int) string {
	l, err := r.Node.Link(index)
	if err != nil {
		return fmt.Sprintf("device %d", index)
	}
	return l.Name
}

// node makes the node's settings what the pods need.
func (r *reconcile) node() error {
	v4, v6 := families(r.rows)
	if on, err := r.Node.Forwards(v4, v6); err != nil {
		return err
	} else if !on {
		unlock, err := r.Datapath.Lock()
		if err != nil {
			return err
		}
		err = r.Node.EnableForwarding(v4, v6)
		unlock()
		if err != nil {
			return err
		}
		r.did("switched forwarding on")
	}
	return r.host(v4, v6)
}

// families says which the pods have addresses of.
func families(rows []maps.Iface) (v4, v6 bool) {
	for _, i := range rows {
		for _, a := range i.Addrs {
			v4, v6 = v4 || a.Is4(), v6 || a.Is6()
		}
	}
	return v4, v6
}

// host opens the node's own way to hostPorts as far as it is not. Without hostPorts, GC
// closes it.
func (r *reconcile) host(v4, v6 bool) error {
	any, loopback, err := r.openPorts()
	if err != nil || !any {
		return err
	}
	missing := r.Datapath.CheckHost() != nil
	sockets := loopback && !r.Datapath.SocketsAttached()
	err = r.Datapath.AttachHost(loopback, func() error { return r.hostSettings(v4, v6, loopback) })
	if err != nil {
		return err
	}
	if missing {
		r.did("attached the program for the node's own connections to lo")
	}
	if sockets && r.Datapath.SocketsAttached() {
		r.did("attached the program for connect() to the cgroups")
	}
	return nil
}

// openPorts says whether there are hostPorts, and any that answer on loopback.
func (d *Deps) openPorts() (any, loopback bool, err error) {
	for row, err := range d.Datapath.Maps.Hostports.All() {
		if err != nil {
			return any, loopback, err
		}
		any, loopback = true, loopback || row.Loopback
	}
	return any, loopback, nil
}

func (r *reconcile) hostSettings(v4, v6, loopback bool) error {
	for _, s := range []netdev.Sysctl{acceptLocal, routeLocalnet} {
		if s == routeLocalnet && !loopback {
			continue
		}
		now, err := s.Get()
		if err == nil && now != s.Value {
			err = r.raise(s)
			r.did("set sysctl %s to %s, which hostPorts need", s.Path, s.Value)
		}
		if err != nil {
			return err
		}
	}
	lacking, err := r.lacksDefault(v4, v6)
	if err != nil {
		return err
	}
	for _, family := range lacking {
		if err := r.Node.SetUnreachable(family); err != nil {
			return err
		}
		r.did("set the unreachable IPv%d default route, which hostPorts need", family)
	}
	return nil
}

// lacksDefault gives those of the families asked about, 4 and 6, that have no default route,
// nor our unreachable one.
func (d *Deps) lacksDefault(v4, v6 bool) (families []int, err error) {
	u, err := d.Node.Uplinks(nil, IsHostName)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		family      int
		has, routed bool
	}{{4, v4, u.Default4}, {6, v6, u.Default6}} {
		if !f.has || f.routed {
			continue
		}
		has, err := d.Node.HasUnreachable(f.family)
		if err != nil {
			return nil, err
		}
		if !has {
			families = append(families, f.family)
		}
	}
	return families, nil
}

// masquerade refreshes what the programs know of ports and of the uplinks' and the tunnel's
// addresses.
func (r *reconcile) masquerade() error {
	changed, err := r.RefreshTunnel()
	if err == nil && slices.ContainsFunc(r.rows, func(i maps.Iface) bool { return i.Flags&maps.PodMasquerade != 0 }) {
		var more bool
		more, err = r.refreshMasquerade()
		changed = changed || more
	}
	if changed {
		r.did("refreshed the uplinks' addresses and the ports for masquerading")
	}
	return err
}

// pods repairs what the pods that live lack. One that goes meanwhile is passed over.
func (r *reconcile) pods() error {
	var errs []error
	for _, i := range r.rows {
		err := r.pod(i)
		if errors.Is(err, ErrWentAway) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("repair %s: %w", i.Owner, err))
		}
	}
	return errors.Join(errs...)
}
