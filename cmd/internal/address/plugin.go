// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Plugin is culvert-ipam for one call: of its own binary, or of culvert. Its verbs are those
// of CNI; errors are those of this package, of maps and of loader.
type Plugin struct {
	Conf  *Conf
	Owner maps.Owner // of ADD, DEL, CHECK
	Netns string     // CNI_NETNS of ADD
	Log   *slog.Logger
	// Pods tells of the pods that live when no table does: rows of ifaces, as far as the
	// node's devices and routes say.
	Pods func(*netdev.Handle) ([]maps.Iface, error)
	Stop <-chan struct{} // as in loader.Options
}

// Add gives the addresses. All that can be wrong with the request is found before the table
// is touched.
func (p *Plugin) Add() (*current.Result, error) {
	dns, err := readResolvConf(p.Conf.ResolvConf)
	if err != nil {
		return nil, err
	}
	t, err := p.ensure()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	given, err := pool(t).Add(p.tenant(), p.Conf.Sets, p.Conf.Requested)
	if err != nil {
		return nil, err
	}
	r := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: p.Conf.Routes, DNS: dns}
	for i, addr := range given {
		r.IPs = append(r.IPs, ipConfig(p.Conf.Sets[i], addr))
	}
	return r, nil
}

func ipConfig(set Set, addr netip.Addr) *current.IPConfig {
	r, _ := set.Range(addr)
	return &current.IPConfig{
		Address: net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(r.Subnet.Bits(), addr.BitLen())},
		Gateway: r.Gateway.AsSlice(),
	}
}

// tenant says by what it is to be proved that the attachment is dead. A namespace that cannot
// be opened is the main plugin's to complain of.
func (p *Plugin) tenant() maps.Tenant {
	who := maps.Tenant{Owner: p.Owner}
	if ns, err := netdev.OpenNamespace(p.Netns); err == nil {
		defer ns.Close()
		if len(p.Netns) < 128 {
			who.Netns, who.NetnsPath = ns.Inode, p.Netns
		}
	}
	return who
}

// Del gives the addresses back. It needs no ranges, and nothing that it does not find is an
// error, nor is a node without bpffs.
func (p *Plugin) Del() error {
	t, err := p.open()
	if err != nil || t == nil {
		return err
	}
	defer t.Close()
	return pool(t).Release(p.Owner)
}

// Check makes sure that the addresses are the attachment's.
func (p *Plugin) Check() error {
	t, err := p.open()
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("%w: there is no table of addresses under %s", ErrNotHeld, p.Conf.PinPath)
	}
	defer t.Close()
	return pool(t).Check(p.Owner, p.Conf.Sets, p.Conf.Prev)
}

// GC gives back what nobody has.
func (p *Plugin) GC() error {
	t, err := p.ensure()
	if err != nil {
		return err
	}
	defer t.Close()
	freed, err := pool(t).GC(p.Conf.Network, p.Conf.Valid, alive)
	for _, o := range freed {
		p.Log.Info("collected", "network", o.Network, "container", o.Container, "ifname", o.IfName)
	}
	return err
}

// Status says whether an ADD would find an address. It changes nothing.
func (p *Plugin) Status() error {
	t, err := loader.OpenAddresses(p.options())
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil // the next ADD makes it
	}
	if err != nil {
		return err
	}
	defer t.Close()
	return pool(t).Full(p.Conf.Network, p.Conf.Sets)
}

func (p *Plugin) options() loader.Options {
	return loader.Options{PinPath: p.Conf.PinPath, Log: p.Log, Stop: p.Stop}
}

// open opens the table, nil if there is none.
func (p *Plugin) open() (*loader.Addresses, error) {
	t, err := loader.OpenAddresses(p.options())
	if errors.Is(err, loader.ErrNotLoaded) || errors.Is(err, loader.ErrNotBPFFS) {
		return nil, nil
	}
	return t, err
}

// ensure opens the table for verbs that repair. Nothing is given before the pods that live
// have their rows.
func (p *Plugin) ensure() (*loader.Addresses, error) {
	if t, err := loader.OpenAddresses(p.options()); err == nil {
		if done, err := t.Rebuilt(); err == nil && done {
			return t, nil
		}
		t.Close()
	}
	node, err := netdev.Open()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	opts := p.options()
	opts.Netlink = node
	t, err := loader.EnsureAddresses(opts)
	if err != nil {
		return nil, err
	}
	n, err := pool(t).Rebuild(func() ([]maps.Iface, error) { return p.Pods(node) })
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("rebuild addresses: %w", err)
	}
	if n > 0 {
		p.Log.Warn("rebuilt the addresses of pods that live", "pods", n)
	}
	return t, nil
}

func pool(t *loader.Addresses) *Pool {
	return &Pool{Table: t.Addresses, Lock: t.Lock, Now: monotonic, CoolDown: CoolDown}
}

func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it does not fail
	return time.Duration(t.Nano())
}

// alive says whether an attachment may live: what cannot be proved dead does.
func alive(t maps.Tenant) bool { return t.Netns == 0 || netdev.MayLive(t.NetnsPath, t.Netns) }
