// SPDX-License-Identifier: Apache-2.0

// Linknode makes of a node what the agent makes of it for other nodes' pods: the tunnel device
// with its programs, rows of remotes, routes. It reads a Plan from stdin. Tests link nodes
// by it where there is no Kubernetes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Plan is all that the node is to know of others.
type Plan struct {
	PinPath string
	Attach  loader.AttachMode
	MTU     int // of the tunnel; 0: there is none
	Port    int
	Addrs   []netip.Addr // of the tunnel device
	Remotes []maps.Remote
	Routes  []netdev.RemoteRoute
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var p Plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return fmt.Errorf("decode plan: %w", err)
	}
	h, err := netdev.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	d, err := loader.Ensure(loader.Options{PinPath: p.PinPath, Attach: p.Attach, Netlink: h})
	if err != nil {
		return err
	}
	defer d.Close()
	index := 0
	if p.MTU > 0 {
		index, err = h.EnsureTunnel(netdev.TunnelConfig{MTU: p.MTU, Port: p.Port, Addrs: p.Addrs, Attach: d.AttachTunnel})
		if err != nil {
			return err
		}
	}
	if err := syncRemotes(d.Maps.Remotes, p.Remotes, index); err != nil {
		return err
	}
	if _, err = h.SyncRemoteRoutes(p.Routes); err != nil {
		return err
	}
	node := podnet.Deps{Node: h, Datapath: d, PinPath: p.PinPath, Log: slog.Default()}
	_, err = node.RefreshTunnel()
	return err
}

// syncRemotes writes rows before it deletes others.
func syncRemotes(table *maps.Remotes, want []maps.Remote, index int) error {
	have, err := maps.Collect(table.All())
	errs := []error{err}
	wanted := map[netip.Prefix]bool{}
	for _, r := range want {
		wanted[r.Prefix] = true
		if r.Kind == maps.RemoteTunnel {
			r.Ifindex = index
		}
		errs = append(errs, table.Put(r))
	}
	for _, r := range have {
		if !wanted[r.Prefix] {
			errs = append(errs, table.Delete(r.Prefix))
		}
	}
	return errors.Join(errs...)
}
