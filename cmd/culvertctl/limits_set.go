// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

const setHelp = `Change the limits of a pod that runs, at once, without losing a packet.

POD is a container id or its beginning, ID/INTERFACE, or an address of the pod.
RATE is in bit/s: 500k, 20M, 1.5G, 1000000; 0 or none lifts the limit. The
direction is seen from the pod; one that is not named stays as it is. The change
holds until the pod goes: its next start has the limit of its configuration.`

const limitsSetExample = `  culvertctl limits set 10.88.0.3 --ingress 20M --egress none
  culvertctl limits set 4f2a --egress 1.5G         # the beginning of the container's id
  culvertctl limits set 4f2a/eth0 --ingress 500k   # one interface of several`

func newLimitsSet(a *app) *cobra.Command {
	var ingress, egress string
	c := &cobra.Command{
		Use:               "set POD [--ingress RATE] [--egress RATE]",
		Short:             "Change the limits of a running pod",
		ValidArgsFunction: completePod(a),
		Long:              setHelp,
		Example:           limitsSetExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("%d pods are named, not one: see culvertctl limits set --help", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var change podnet.LimitChange
			for _, f := range []struct {
				name, value string
				to          **podnet.Rate
			}{{"ingress", ingress, &change.Ingress}, {"egress", egress, &change.Egress}} {
				if !c.Flags().Changed(f.name) {
					continue
				}
				rate, err := parseRate(f.value)
				if err != nil {
					return usage("--%s %q: %w", f.name, f.value, err)
				}
				*f.to = &podnet.Rate{Rate: rate}
			}
			if change == (podnet.LimitChange{}) {
				return usage("nothing to set: name --ingress, --egress or both")
			}
			return setLimits(a, args[0], change)
		},
	}
	c.Flags().StringVar(&ingress, "ingress", "", "limit of what the pod receives")
	c.Flags().StringVar(&egress, "egress", "", "limit of what the pod sends")
	return c
}

// setLimits changes the limits of the pod and shows what they are then.
func setLimits(a *app, pod string, change podnet.LimitChange) error {
	d, err := a.open()
	if err != nil {
		return err
	}
	defer d.Close()
	i, err := findPod(d.Maps, pod)
	if err != nil {
		return err
	}
	if err := applyLimits(a, d, i, change); err != nil {
		return fmt.Errorf("set limits of %s/%s: %w", i.Container, i.IfName, err)
	}
	rows, err := readLimits(d.Maps)
	if err != nil {
		return err
	}
	return show(a, limitsHeader, slices.DeleteFunc(rows, func(r limitRow) bool { return r.Ifindex != i.Ifindex }))
}

func applyLimits(a *app, d *loader.Datapath, i maps.Iface, change podnet.LimitChange) error {
	node, err := netdev.Open()
	if err != nil {
		return err
	}
	defer node.Close()
	deps := &podnet.Deps{Node: node, Datapath: d, PinPath: a.pinPath, Log: slog.New(slog.DiscardHandler)}
	return podnet.SetLimits(deps, i, change)
}

var (
	rateSyntax = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kKMGTP]?)$`)
	rateUnits  = map[string]int64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
)

// parseRate reads a rate as bits prints it, in bit/s; 0 for "none".
func parseRate(s string) (uint64, error) {
	if s == "none" {
		return 0, nil
	}
	m := rateSyntax.FindStringSubmatch(s)
	if m == nil {
		return 0, errors.New("not a rate in bit/s as 500k, 20M, 1.5G or none")
	}
	value, _ := new(big.Rat).SetString(m[1])
	value.Mul(value, new(big.Rat).SetInt64(rateUnits[m[2]]))
	switch {
	case value.Sign() == 0:
		return 0, nil
	case value.Cmp(new(big.Rat).SetInt64(podnet.LeastRate)) < 0:
		return 0, errors.New("not 0 (no limit) and below 1000 bit/s")
	case value.Cmp(new(big.Rat).SetInt64(podnet.MostRate)) > 0:
		return 0, errors.New("more than 1 Pbit/s")
	case !value.IsInt():
		return 0, errors.New("not a whole number of bit/s")
	}
	return value.Num().Uint64(), nil
}
