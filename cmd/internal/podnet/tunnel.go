// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"slices"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// The tunnel to other nodes' pods, its routes and the rows of remotes are the agent's, who makes
// them anew when they are not what they should be. Without it reconcile puts the programs back,
// and uninstall takes away what it has left.

// bareTunnels are our tunnel devices that lack programs though rows say that they are used.
func (d *Deps) bareTunnels() ([]netdev.Link, error) {
	used := false
	for r, err := range d.Datapath.Maps.Remotes.All() {
		if err != nil {
			return nil, err
		}
		if used = r.Kind == maps.RemoteTunnel; used {
			break
		}
	}
	if !used {
		return nil, nil
	}
	all, err := d.Node.Tunnels()
	var bare []netdev.Link
	for _, l := range all {
		if d.Datapath.CheckTunnel(l.Index) != nil {
			bare = append(bare, l)
		}
	}
	return bare, err
}

func (n *inspect) tunnels() error {
	bare, err := n.bareTunnels()
	for _, l := range bare {
		n.amiss("culvertd repairs it, or culvertctl reconcile", "the tunnel %s carries not all programs: other nodes' pods are not reached by it, and who sends to its port is not looked at", l.Name)
	}
	return err
}

func (r *reconcile) tunnels() error {
	bare, err := r.bareTunnels()
	if err != nil {
		return err
	}
	for _, l := range bare {
		if err := r.Datapath.AttachTunnel(l.Index); err != nil {
			return err
		}
		r.did("attached the programs to the tunnel %s", l.Name)
	}
	return nil
}

// linksNodes says whether this pinPath is the one by which the node reaches others; it is where
// that cannot be known.
func (u *uninstall) linksNodes(tunnels []netdev.Link) (bool, error) {
	if u.Datapath == nil {
		return true, nil
	}
	for _, err := range u.Datapath.Maps.Remotes.All() {
		return err == nil, err
	}
	return slices.ContainsFunc(tunnels, func(l netdev.Link) bool { return u.Datapath.CheckTunnel(l.Index) == nil }), nil
}

// tunnels takes the routes away first, so that nothing is sent to where it does not arrive.
func (u *uninstall) tunnels() error {
	tunnels, err := u.Node.Tunnels()
	if err != nil {
		return err
	}
	if ours, err := u.linksNodes(tunnels); err != nil || !ours {
		return err
	}
	ranges, err := u.Node.RemoteRanges()
	if err != nil {
		return err
	}
	if len(ranges) > 0 {
		u.add(func() error { _, err := u.Node.SyncRemoteRoutes(nil); return err }, "delete %d routes to other nodes' pods", len(ranges))
	}
	for _, l := range tunnels {
		u.add(func() error { return u.Node.DeleteLink(l.Index) }, "delete the tunnel %s", l.Name)
	}
	return nil
}
