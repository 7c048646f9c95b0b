// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

const reconcileHelp = `Repair what is amiss on this node, and say what that was, a line each.

bpffs is mounted and the datapath loaded where they are not; tables whose pins are
gone are found again; programs, shapers, routes, neighbours and settings of pods
that live, programs on uplinks and on lo are put back; what is left of pods that
are gone is taken away. Where all is well nothing is written. Exit 0: all is well
now; 1: something could not be repaired.

Which uplinks a network wants is read from --conf-dir if the node has lost it; a
network that is not there goes by the rule (the devices of the default routes, and
those that hold a global address).`

const defaultConfDir = "/etc/cni/net.d"

type reconcileView struct {
	Repaired []string `json:"repaired"`
	Failed   []string `json:"failed"`
}

func newReconcile(a *app) *cobra.Command {
	var dir, attach string
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Repair what is amiss on this node, and say what that was",
		Long:  reconcileHelp,
		Example: `  culvertctl reconcile                          # nothing printed: all was well
  culvertctl reconcile --conf-dir /etc/cni/net.d`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			mode := loader.AttachMode(attach)
			if mode != loader.AttachAuto && mode != loader.AttachTCX && mode != loader.AttachClsact {
				return usage("--attach %q: use auto, tcx or clsact", attach)
			}
			view, err := reconcile(a, dir, mode)
			if err != nil {
				view.Failed = append(view.Failed, err.Error())
			}
			if err := view.show(a); err != nil {
				return err
			}
			if len(view.Failed) > 0 {
				return fmt.Errorf("not everything could be repaired: %s", view.Failed[0])
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "conf-dir", defaultConfDir, "directory of the networks' configurations, which are only read")
	c.Flags().StringVar(&attach, "attach", string(loader.AttachAuto), "how missing programs are attached: auto, tcx or clsact")
	completeFlag(c, "conf-dir", directories)
	completeFlag(c, "attach", cobra.FixedCompletions([]string{"auto", "tcx", "clsact"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func reconcile(a *app, dir string, mode loader.AttachMode) (reconcileView, error) {
	view := reconcileView{Repaired: []string{}, Failed: []string{}}
	did := func(what string) { view.Repaired = append(view.Repaired, what) }
	node, err := netdev.Open()
	if err != nil {
		return view, err
	}
	defer node.Close()
	if unused(a, node) {
		return view, nil
	}
	d, err := loader.Ensure(loader.Options{PinPath: a.pinPath, Attach: mode, Netlink: node, Did: did})
	if err != nil {
		return view, err
	}
	defer d.Close()
	networks := readNetworks(dir, a.pinPath)
	known := func(network string) ([]string, bool) {
		names, ok := networks[network]
		if !ok {
			did(fmt.Sprintf("network %s is not in %s: its uplinks are found by the rule", network, dir))
		}
		return names, true
	}
	deps := &podnet.Deps{Node: node, Datapath: d, PinPath: a.pinPath, Log: slog.New(slog.DiscardHandler)}
	done, err := podnet.Reconcile(deps, known, false)
	view.Repaired = append(view.Repaired, done...)
	return view, err
}

// unused says that this node has nothing to be repaired: nothing is pinned, and no pod of
// ours is there. Then nothing is loaded either.
func unused(a *app, node *netdev.Handle) bool {
	d, err := a.open()
	if err == nil {
		d.Close()
		return false
	}
	links, err1 := node.LinksNamed(podnet.IsHostName)
	filters, err2 := node.ListFilters()
	return err1 == nil && err2 == nil && len(links) == 0 && len(filters) == 0
}

func (v reconcileView) show(a *app) error {
	if a.output != "table" {
		return a.encode(v)
	}
	for _, what := range v.Repaired {
		if _, err := fmt.Fprintln(a.out, what); err != nil {
			return err
		}
	}
	return nil
}
