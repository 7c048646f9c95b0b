// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

const uninstallHelp = `Take everything of culvert's under one --pin-path off this node, a line each.

Programs on uplinks, lo, the cgroups and pods' devices, sysctls of lo that hostPorts
needed, the tunnel to other nodes, routes with culvert's protocol numbers and the pins
go. Forwarding stays on, the bpffs mounted, and every file where it is: end the pods, then
take the network's configuration out of the runtime's directory, and end culvertd, or they
bring all of it back.

While pods are there it refuses. With --force they lose their network, or, behind
another main plugin, their hostPorts and limits.`

type uninstallView struct {
	DryRun  bool     `json:"dryRun"`
	Removed []string `json:"removed"` // or what would be
}

func newUninstall(a *app) *cobra.Command {
	var dry, force bool
	c := &cobra.Command{
		Use:   "uninstall [--dry-run] [--force]",
		Short: "Take everything of culvert's off this node",
		Long:  uninstallHelp,
		Example: `  mv /etc/cni/net.d/10-culvert.conflist /root/   # or the next pod brings everything back
  culvertctl uninstall --dry-run
  culvertctl uninstall`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			view, err := uninstall(a, dry, force)
			if a.output != "table" {
				return errors.Join(a.encode(view), err)
			}
			for _, what := range view.Removed {
				fmt.Fprintln(a.out, what)
			}
			return err
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "list what would be done, and do nothing")
	c.Flags().BoolVar(&force, "force", false, "although there are pods")
	return c
}

func uninstall(a *app, dry, force bool) (uninstallView, error) {
	view := uninstallView{DryRun: dry, Removed: []string{}}
	node, err := netdev.Open()
	if err != nil {
		return view, err
	}
	defer node.Close()
	deps := &podnet.Deps{Node: node, PinPath: a.pinPath, Log: slog.New(slog.DiscardHandler)}
	// Tables that cannot be opened, of another layout or in part, go with their pins.
	if d, err := loader.Open(loader.Options{PinPath: a.pinPath, Netlink: node}); err == nil {
		defer d.Close()
		deps.Datapath = d
	}
	list, err := podnet.Uninstall(deps, force || dry)
	if err != nil {
		return view, err
	}
	var errs []error
	for _, r := range list {
		if !dry {
			if err := r.Do(); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		view.Removed = append(view.Removed, r.What)
	}
	return view, errors.Join(errs...)
}
