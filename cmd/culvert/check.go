// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
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
		return netconf.Bad("prevResult", "(none)", "CHECK needs the result of ADD")
	}
	s, err := openPodSession("CHECK", args, c)
	if err != nil {
		return err
	}
	defer s.close()
	dp, err := loader.Open(s.options())
	if err != nil {
		return err
	}
	defer dp.Close()
	if err := podnet.Check(s.deps(dp), s.spec(), c.prevResult); err != nil {
		return err
	}
	if c.chained {
		return nil
	}
	return s.ipam().Check(ctx)
}
