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

// refreshMasquerade says whether something had changed.
func (d *Deps) refreshMasquerade() (bool, error) {
	want, err := d.masquerade()
	if err != nil {
		return false, err
	}
	if want.Features&maps.FeatureSharedPorts != 0 {
		d.Log.Warn(loader.SharedPorts().Error())
	}
	config := d.Datapath.Maps.Config
	if now, err := config.Get(); err != nil || sameMasquerade(now, want) {
		return false, err
	}
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := config.Get()
	if err != nil {
		return false, err
	}
	now.Ports, now.Uplinks = want.Ports, want.Uplinks
	now.Features = now.Features&^maps.FeatureSharedPorts | want.Features
	return true, config.Put(now)
}

// masquerade is what the row of config has to say now.
func (d *Deps) masquerade() (maps.NodeConfig, error) {
	taken, err := d.Node.HostPorts()
	if err != nil {
		return maps.NodeConfig{}, err
	}
	var c maps.NodeConfig
	c.Ports, c.Features = choosePorts(taken)
	c.Uplinks, err = d.uplinkAddrs()
	return c, err
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

// uplinkAddrs is about every device that carries our programs for uplinks: networks with
// other uplinks share the row.
func (d *Deps) uplinkAddrs() ([]maps.UplinkAddr, error) {
	indexes, err := d.Datapath.Uplinks()
	if err != nil {
		return nil, err
	}
	if len(indexes) > maps.MaxUplinkAddrs {
		d.Log.Warn("too many uplinks: before Linux 6.7 nothing is masqueraded on the last ones", "uplinks", len(indexes), "most", maps.MaxUplinkAddrs)
		indexes = indexes[:maps.MaxUplinkAddrs]
	}
	var addrs []maps.UplinkAddr
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
