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

// isDeviceOf says whether a device is the one of a row. A veth of ours has the name that we
// gave it; another plugin's may have been renamed since, and is known by its number alone,
// which the kernel gives out anew only after 2^31 others.
func isDeviceOf(l netdev.Link, i maps.Iface) bool {
	if i.Flags&maps.PodChained != 0 {
		return l.Kind == "veth"
	}
	return l.Name == i.HostIfName
}

func (p *live) chained() bool { return p.row.Flags&maps.PodChained != 0 }

// removeChained is remove where the veth stays, or has been taken by its own plugin.
func (d *Deps) removeChained(i maps.Iface) error {
	if err := errors.Join(d.dropRoutes(i), d.leaveVeth(i), d.dropShapers(i), d.dropState(i)); err != nil {
		return err
	}
	if err := d.Datapath.Maps.Ifaces.Delete(i.Ifindex); err != nil {
		return err
	}
	// Who changed the limits meanwhile may have written after we deleted. He looks whether the
	// row stands when he is done: either he found it, and is deleted now, or he undoes it.
	return d.dropLimits(i)
}

// dropLimits deletes the limits of a chained attachment, rows and shapers.
func (d *Deps) dropLimits(i maps.Iface) error {
	m := d.Datapath.Maps.Limits
	return errors.Join(d.dropShapers(i), m.Delete(i.Ifindex, maps.Ingress), m.Delete(i.Ifindex, maps.Egress))
}

func (p *live) dropChained() error { return p.dropLimits(p.row) }

// leaveVeth takes our programs off, and the qdisc that they hung in if that is ours and
// nobody else uses it by now.
func (d *Deps) leaveVeth(i maps.Iface) error {
	if err := d.Datapath.LeavePod(i.Ifindex); err != nil || i.Flags&maps.PodOwnClsact == 0 {
		return err
	}
	return d.Node.DropClsact(i.Ifindex)
}

// dropShapers takes our shapers off both ends. The container's may be out of reach: it goes
// with the namespace.
func (d *Deps) dropShapers(i maps.Iface) error {
	host, err := d.Node.Link(i.Ifindex)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Node.DropShaper(i.Ifindex)
	ns, nsErr := netdev.OpenNamespace(i.NetnsPath)
	if nsErr != nil {
		return err
	}
	defer ns.Close()
	if ns.Inode != i.Netns {
		return err
	}
	pod, podErr := netdev.OpenIn(ns)
	if podErr != nil {
		return errors.Join(err, podErr)
	}
	defer pod.Close()
	if inside, gone := pod.Link(host.PeerIndex); gone != nil || inside.PeerIndex != host.Index {
		return err // moved on
	}
	return errors.Join(err, pod.DropShaper(host.PeerIndex))
}

// withoutPods takes from the uplinks found by their address what leads to chained pods: the
// bridge that they are on, and a routed veth whose node's end has an address. One that holds
// a default route is an uplink all the same.
func (d *Deps) withoutPods(u netdev.Uplinks) (netdev.Uplinks, error) {
	var links []netdev.Link
	for _, l := range u.Links {
		pods := false
		if !slices.Contains(u.ByDefault, l.Index) && len(u.Names) == 0 {
			var err error
			if pods, err = d.leadsToPods(l); err != nil {
				return u, err
			}
		}
		if !pods {
			links = append(links, l)
		}
	}
	u.Links = links
	return u, nil
}

func (d *Deps) leadsToPods(l netdev.Link) (bool, error) {
	if _, err := d.Datapath.Maps.Ifaces.Get(l.Index); err == nil {
		return true, nil
	} else if !errors.Is(err, maps.ErrNotFound) {
		return false, err
	}
	if l.Kind != "bridge" {
		return false, nil
	}
	for row, err := range d.Datapath.Maps.Ifaces.All() {
		if err != nil {
			return false, err
		}
		if row.Flags&maps.PodChained == 0 {
			continue
		}
		if port, err := d.Node.Link(row.Ifindex); err == nil && port.Master == l.Index {
			return true, nil
		}
	}
	return false, nil
}

// chainedVeth is veth for an interface that is another plugin's: that it is there, and that
// packets are sent to the address it has.
func (c *check) chainedVeth() error {
	if err := checkSandbox(c.Prev, c.IfName, c.Netns); err != nil {
		return err
	}
	inside, outside, err := findVeth(c.Node, c.pod, c.Netns, c.IfName)
	switch {
	case err != nil:
		return fmt.Errorf("check veth: %w", err)
	case c.row.Flags&maps.PodChained == 0:
		return fmt.Errorf("check veth: the row of %s is of a veth that culvert made", c.IfName)
	case outside.Index != c.row.Ifindex:
		return fmt.Errorf("check veth: %s has index %d, its row %d", outside.Name, outside.Index, c.row.Ifindex)
	case !outside.Up || !inside.Up:
		return fmt.Errorf("check veth: %s or %s is down", outside.Name, inside.Name)
	case c.row.Netns != c.Netns.Inode:
		return fmt.Errorf("check veth: ADD was for another network namespace than %s", c.Netns.Path)
	}
	for _, addr := range c.row.Addrs {
		row, err := c.Datapath.Maps.Pods.Get(addr)
		if err != nil {
			return fmt.Errorf("check rows: %w", err)
		}
		if err := sameMAC(inside, row.MAC); err != nil { // the node's end may have any
			return err
		}
	}
	return nil
}

func isGone(err error) bool { return errors.Is(err, unix.ENODEV) }
