// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
)

const upgradeHelp = `Put the programs of this build in the place of those that run.

Programs are replaced in their hooks, none is detached: no packet passes without
one, and connections go on. Tables of another layout are moved first. The first
pod that a new binary starts does the same; to go back, run the older binary's
upgrade, or let it start a pod. Where all is of this build nothing is done.`

type upgradeView struct {
	Before string   `json:"before"` // build; "" if nothing is loaded, or nothing to its end
	After  string   `json:"after"`
	Layout int      `json:"layout"` // of the tables, before; 0 if there are none
	Needed bool     `json:"needed"` // false: nothing was to be done
	Did    []string `json:"did"`
}

func newUpgrade(a *app) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the programs that run by those of this build, in place",
		Long:  upgradeHelp,
		Example: `  culvertctl upgrade --dry-run
  culvertctl upgrade`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			view, err := upgrade(a, dryRun)
			if err != nil {
				return err
			}
			return view.show(a, dryRun)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done")
	return c
}

func upgrade(a *app, dryRun bool) (upgradeView, error) {
	view := upgradeView{After: fmt.Sprintf("%016x", bpf.Build()), Did: []string{}}
	was, err := loader.Loaded(a.options())
	if err != nil {
		return view, err
	}
	view.Layout, view.Needed = int(was.Schema), !was.Current
	if was.Build != 0 {
		view.Before = fmt.Sprintf("%016x", was.Build)
	}
	if dryRun || was.Current {
		return view, nil
	}
	if was.Schema == 0 {
		return view, errors.New("nothing is loaded under " + a.pinPath + ": there is nothing to replace, and the first pod loads this build")
	}
	node, err := netdev.Open()
	if err != nil {
		return view, err
	}
	defer node.Close()
	options := a.options()
	options.Netlink, options.Did = node, func(what string) { view.Did = append(view.Did, what) }
	d, err := loader.Ensure(options)
	if err != nil {
		return view, err
	}
	return view, d.Close()
}

func (v upgradeView) show(a *app, dryRun bool) error {
	if a.output != "table" {
		return a.encode(v)
	}
	before := "build " + v.Before
	if v.Before == "" {
		before = "no build"
	}
	line := fmt.Sprintf("build %s runs: nothing to do", v.After)
	switch {
	case v.Needed && dryRun:
		line = fmt.Sprintf("would replace %s (layout %d) by build %s (layout %d)", before, v.Layout, v.After, loader.Schema)
	case v.Needed:
		line = fmt.Sprintf("replaced %s (layout %d) by build %s (layout %d)", before, v.Layout, v.After, loader.Schema)
	}
	if _, err := fmt.Fprintln(a.out, line); err != nil {
		return err
	}
	for _, did := range v.Did {
		if _, err := fmt.Fprintln(a.out, "  "+did); err != nil {
			return err
		}
	}
	return nil
}
