// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// add is ADD. Everything that can be wrong with the request is found before the node is
// touched: configuration, namespace, uplinks, pinPath, in this order.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	if err := c.checkAdd(); err != nil {
		return err
	}
	s, err := openPodSession("ADD", args, c)
	if err != nil {
		return err
	}
	defer s.close()
	s.stop = ctx.Done()
	dp, err := s.ensure()
	if err != nil {
		return err
	}
	defer dp.Close()
	return s.connect(ctx, s.deps(dp))
}

// connect makes the pod's interface, or chained, works on the one that there is, and prints
// the result.
func (s *session) connect(ctx context.Context, deps *podnet.Deps) error {
	print := s.conf.printPrev
	if s.conf.chained {
		if err := podnet.Chain(ctx, deps, s.spec()); err != nil {
			return err
		}
	} else {
		result, err := podnet.Setup(ctx, deps, s.spec())
		if err != nil {
			return err
		}
		print = func() error { return printResult(result, s.conf.cniVersion) }
	}
	if err := print(); err != nil {
		return errors.Join(err, podnet.Teardown(ctx, deps, s.owner()))
	}
	return nil
}

// printResult prints what ADD did, in the version of the configuration.
func printResult(r *current.Result, version string) error {
	if hasMTU, err := cniversion.GreaterThanOrEqualTo(version, "1.1.0"); err != nil || !hasMTU {
		for _, i := range r.Interfaces {
			i.Mtu = 0
		}
	}
	return types.PrintResult(r, version)
}
