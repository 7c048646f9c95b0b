// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/address"
	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// node is the agent's hold of this node. One goroutine uses it.
type node struct {
	net     *netdev.Handle
	pinPath string
	log     *slog.Logger
	did     func(what string) // is told what was repaired; may be nil
	// loads says that this process may load programs. One that may not takes what `culvertd
	// install`, or the last pod's ADD, has loaded.
	loads bool
}

func (n *node) options() loader.Options {
	return loader.Options{PinPath: n.pinPath, Netlink: n.net, Log: n.log, Did: n.did}
}

// mayLoad says whether this process has what the kernel asks for to load the programs: without
// CAP_SYS_ADMIN it gives nobody a descriptor of nf_conntrack's types where that is a module, nor
// one of tables whose pins are gone.
func mayLoad() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&head, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// open gives the datapath, which it loads, or upgrades, if need be. Where its tables had to be
// made anew the pods that live get their rows, as from an ADD.
func (n *node) open() (*loader.Datapath, error) {
	if !n.loads {
		return loader.Open(n.options())
	}
	dp, err := loader.Ensure(n.options())
	if err != nil || !dp.Fresh() {
		return dp, err
	}
	if _, err := n.deps(dp).Rebuild(); err != nil {
		n.log.Error("rows are not rebuilt", "error", err)
	}
	return dp, nil
}

// with calls f with the datapath.
func (n *node) with(f func(*loader.Datapath) error) error {
	dp, err := n.open()
	if err != nil {
		return err
	}
	return errors.Join(f(dp), dp.Close())
}

// Uplinks implements agent.Node.
func (n *node) Uplinks() ([]agent.Uplink, error) {
	found, err := n.net.Uplinks(nil, podnet.IsHostName)
	if err != nil {
		return nil, err
	}
	var uplinks []agent.Uplink
	for _, l := range found.Links {
		addrs, err := n.net.Subnets(l.Index)
		if err != nil {
			return nil, err
		}
		uplinks = append(uplinks, agent.Uplink{Name: l.Name, Index: l.Index, MTU: l.MTU, Addrs: addrs})
	}
	return uplinks, nil
}

// Forward implements agent.Node. Where /proc/sys may not be written, as in a container without
// privileges, ADD does it: it runs on the node.
func (n *node) Forward(v4, v6 bool) error {
	if on, err := n.net.Forwards(v4, v6); on || err != nil {
		return err
	}
	return n.with(func(dp *loader.Datapath) error {
		unlock, err := dp.Lock()
		if err != nil {
			return err
		}
		defer unlock()
		err = n.net.EnableForwarding(v4, v6)
		if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
			n.log.Info("forwarding is off and cannot be switched on from here: the first pod's start does it")
			return nil
		}
		return err
	})
}

// TunnelExists implements agent.Node.
func (n *node) TunnelExists() (bool, error) {
	_, err := n.net.LinkNamed(netdev.TunnelName)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return err == nil, err
}

// EnsureTunnel implements agent.Node.
func (n *node) EnsureTunnel(c netdev.TunnelConfig) (ifindex int, err error) {
	err = n.with(func(dp *loader.Datapath) error {
		c.Attach = dp.AttachTunnel
		ifindex, err = n.net.EnsureTunnel(c)
		return err
	})
	return ifindex, err
}

// SyncRoutes implements agent.Node. The programs on the tunnel are told which source it has the
// node's packets leave with.
func (n *node) SyncRoutes(routes []netdev.RemoteRoute) (changed int, err error) {
	changed, err = n.net.SyncRemoteRoutes(routes)
	return changed, errors.Join(err, n.with(func(dp *loader.Datapath) error {
		_, err := n.deps(dp).RefreshTunnel()
		return err
	}))
}

func (n *node) deps(dp *loader.Datapath) *podnet.Deps {
	return &podnet.Deps{Node: n.net, Datapath: dp, PinPath: n.pinPath, Log: n.log}
}

// SyncRemotes implements agent.Node: rows that are missing first, since a packet whose row is
// gone goes astray, and one that has a row too many does not.
func (n *node) SyncRemotes(want []maps.Remote) (changed int, err error) {
	err = n.with(func(dp *loader.Datapath) error {
		changed, err = syncRemotes(dp.Maps.Remotes, want)
		return err
	})
	return changed, err
}

func syncRemotes(table *maps.Remotes, want []maps.Remote) (changed int, err error) {
	rows, err := maps.Collect(table.All())
	if err != nil {
		return 0, err
	}
	now := map[netip.Prefix]maps.Remote{}
	for _, r := range rows {
		now[r.Prefix] = r
	}
	var errs []error
	for _, r := range want {
		if now[r.Prefix] != r {
			errs = append(errs, table.Put(r))
			changed++
		}
		delete(now, r.Prefix)
	}
	for p := range now {
		errs = append(errs, table.Delete(p))
		changed++
	}
	return changed, errors.Join(errs...)
}

// Ready implements agent.Node: it is what STATUS of the plugin says of this configuration.
func (n *node) Ready(conf []byte) error {
	if _, err := n.net.Uplinks(nil, podnet.IsHostName); err != nil {
		return err
	}
	if faults := loader.Inspect(n.options()).Faults; len(faults) > 0 {
		return errors.New(faults[0].Error())
	}
	call := address.Call{Stdin: conf, Log: n.log, Pods: podnet.Witnesses}
	if err := call.Status(); err != nil {
		coded := address.Coded(err)
		return fmt.Errorf("%s: %s", coded.Msg, coded.Details)
	}
	return nil
}
