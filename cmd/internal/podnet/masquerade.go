// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// pool is where source ports of masqueraded flows come from: not those that the kernel
// gives to sockets by default (32768-60999), nor those of Kubernetes' NodePorts, nor the
// low ones that servers use.
var pool = []netdev.Ports{{First: 20000, Last: 29999}, {First: 61000, Last: 65535}}

// leastPorts is how many ports a node needs for itself alone. With fewer left, the whole
// pool is used, and the programs look for sockets of the host on each port.
const leastPorts = 1000

// prepareMasquerade tells the programs which ports and addresses there are. It takes the
// lock only if something has changed.
func (s *setup) prepareMasquerade(context.Context) error {
	if !s.Masquerade {
		return nil
	}
	_, err := s.refreshMasquerade()
	return err
}

// refreshMasquerade says whether something had changed. What tunnels have it leaves to
// RefreshTunnel.
func (d *Deps) refreshMasquerade() (bool, error) {
	uplinks, tunnels, err := d.Datapath.Carriers()
	if err != nil {
		return false, err
	}
	changed, features, err := d.writeMasquerade(func(were []maps.UplinkAddr) ([]maps.UplinkAddr, error) {
		return d.uplinkAddrs(keptAddrs(tunnels, were), uplinks)
	})
	if features&maps.FeatureSharedPorts != 0 {
		d.Log.Warn(loader.SharedPorts().Error())
	}
	return changed, err
}

// RefreshTunnel tells the programs the addresses of the tunnel device, so that what is no pod's
// leaves by it with the first of them, and the source ports for that. What uplinks have it leaves to
// ADDs. Call it after SyncRemoteRoutes. It is idempotent, takes the lock only if something has changed, and does
// nothing where there is no tunnel.
func (d *Deps) RefreshTunnel() (changed bool, err error) {
	uplinks, tunnels, err := d.Datapath.Carriers()
	if err != nil || len(tunnels) == 0 {
		return false, err
	}
	changed, _, err = d.writeMasquerade(func(were []maps.UplinkAddr) ([]maps.UplinkAddr, error) {
		addrs, err := d.tunnelAddrs(tunnels)
		addrs = append(addrs, keptAddrs(uplinks, were)...)
		return addrs[:min(len(addrs), maps.MaxUplinkAddrs)], err
	})
	return changed, err
}

// addrRows gives the rows of addresses, the tunnels' first, from those that were there.
type addrRows func(were []maps.UplinkAddr) ([]maps.UplinkAddr, error)

// writeMasquerade makes the row of config say what it has to say now.
func (d *Deps) writeMasquerade(rows addrRows) (changed bool, features maps.Features, err error) {
	taken, err := d.Node.HostPorts()
	if err != nil {
		return false, 0, err
	}
	want := func(now maps.NodeConfig) (maps.NodeConfig, error) {
		now.Ports, features = choosePorts(taken)
		now.Features = now.Features&^maps.FeatureSharedPorts | features
		now.Uplinks, err = rows(now.Uplinks)
		return now, err
	}
	config := d.Datapath.Maps.Config
	was, err := config.Get()
	if err != nil {
		return false, features, err
	}
	if now, err := want(was); err != nil || sameMasquerade(now, was) {
		return false, features, err
	}
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return false, features, err
	}
	defer unlock()
	if was, err = config.Get(); err != nil {
		return false, features, err
	}
	now, err := want(was)
	if err != nil {
		return false, features, err
	}
	return true, features, config.Put(now)
}

func sameMasquerade(a, b maps.NodeConfig) bool {
	return slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Uplinks, b.Uplinks) &&
		(a.Features^b.Features)&maps.FeatureSharedPorts == 0
}

func (c *check) masquerade() error {
	if !c.Masquerade {
		return nil
	}
	config, err := c.Datapath.Maps.Config.Get()
	if err == nil && config.PortCount() == 0 {
		err = errors.New("check config: no source ports for masqueraded flows")
	}
	return err
}

// uplinkAddrs adds every device that carries our programs for uplinks, since networks with other
// uplinks share the row, to the tunnel's, which every kernel's programs ask for.
func (d *Deps) uplinkAddrs(addrs []maps.UplinkAddr, indexes []int) (_ []maps.UplinkAddr, err error) {
	if room := maps.MaxUplinkAddrs - len(addrs); len(indexes) > room {
		d.Log.Warn("too many uplinks: before Linux 6.7 nothing is masqueraded on the last ones", "uplinks", len(indexes), "most", room)
		indexes = indexes[:room]
	}
	for _, index := range indexes {
		a := maps.UplinkAddr{Ifindex: index}
		if a.Addr4, err = d.Node.SourceAddr(index, 4); err != nil {
			return nil, err
		}
		if a.Addr6, err = d.Node.SourceAddr(index, 6); err != nil {
			return nil, err
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// keptAddrs are those rows that are about one of the devices.
func keptAddrs(devices []int, were []maps.UplinkAddr) (kept []maps.UplinkAddr) {
	for _, u := range were {
		if slices.Contains(devices, u.Ifindex) {
			kept = append(kept, u)
		}
	}
	return kept
}

// tunnelAddrs are the rows of what the tunnels have now.
func (d *Deps) tunnelAddrs(tunnels []int) (addrs []maps.UplinkAddr, err error) {
	for _, index := range tunnels {
		v4, v6, err := d.Node.TunnelAddrs(index)
		if err != nil {
			return nil, err
		}
		for i := range max(len(v4), len(v6)) {
			a := maps.UplinkAddr{Ifindex: index}
			if i < len(v4) {
				a.Addr4 = v4[i]
			}
			if i < len(v6) {
				a.Addr6 = v6[i]
			}
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// choosePorts gives the pool without what is taken, or, with the feature that says so, the
// whole pool.
func choosePorts(taken []netdev.Ports) ([]maps.PortRange, maps.Features) {
	free := slices.Clone(pool)
	for _, t := range taken {
		free = subtract(free, t)
	}
	// The largest that the row has room for.
	slices.SortStableFunc(free, func(a, b netdev.Ports) int { return cmp.Compare(b.Last-b.First, a.Last-a.First) })
	free = free[:min(len(free), maps.MaxPortRanges)]
	c := maps.NodeConfig{Ports: portRanges(free)}
	if c.PortCount() >= leastPorts {
		return c.Ports, 0
	}
	return portRanges(pool), maps.FeatureSharedPorts
}

// subtract gives ranges without the ports of t; it leaves from as it is.
func subtract(from []netdev.Ports, t netdev.Ports) []netdev.Ports {
	var out []netdev.Ports
	for _, r := range from {
		if t.Last < t.First || t.First > r.Last || t.Last < r.First {
			out = append(out, r)
			continue
		}
		if r.First < t.First {
			out = append(out, netdev.Ports{First: r.First, Last: t.First - 1})
		}
		if t.Last < r.Last {
			out = append(out, netdev.Ports{First: t.Last + 1, Last: r.Last})
		}
	}
	return out
}

// portRanges gives the ranges in order, as rows have them.
func portRanges(from []netdev.Ports) []maps.PortRange {
	var out []maps.PortRange
	for _, r := range from {
		out = append(out, maps.PortRange{First: uint16(r.First), Last: uint16(r.Last)})
	}
	slices.SortFunc(out, func(a, b maps.PortRange) int { return cmp.Compare(a.First, b.First) })
	return out
}
