// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

// check is CHECK: it looks at what ADD made and repairs nothing.
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	if c.prevResult == nil {
		return badValue("prevResult", "(none)", "CHECK needs the result of ADD")
	}
	if err := firstError(c.checkMain(), checkNames(c, args)); err != nil {
		return err
	}
	ns, err := openNetns(args)
	if err != nil {
		return err
	}
	defer ns.Close()
	s, err := openSession("CHECK", args, c)
	if err != nil {
		return err
	}
	defer s.close()
	uplinks, err := s.uplinks()
	if err != nil {
		return err
	}
	dp, err := loader.Open(s.options())
	if err != nil {
		return err
	}
	defer dp.Close()
	if err := podnet.Check(s.deps(dp), s.spec(ns, uplinks), c.prevResult); err != nil {
		return err
	}
	return s.ipam().Check(ctx)
}
