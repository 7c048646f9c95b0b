// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

// del is DEL. It needs neither the namespace nor a result, and nothing that it does not
// find is an error, nor is a node without bpffs.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parseForDelete(args.StdinData)
	if err != nil {
		return err
	}
	s, err := openSession("DEL", args, c)
	if err != nil { // the log file: not worth a pod that cannot go
		c.logFile = ""
		s, err = openSession("DEL", args, c)
	}
	if err != nil {
		return err
	}
	defer s.close()
	s.stop = ctx.Done()
	dp, err := loader.Open(s.options())
	if errors.Is(err, loader.ErrOtherLayout) { // the rows have to come to where we delete them
		dp, err = loader.Ensure(s.options())
	}
	switch {
	case err == nil:
		defer dp.Close()
	case errors.Is(err, loader.ErrNotLoaded), errors.Is(err, loader.ErrNotBPFFS):
		s.log.Warn("no datapath: only the veth is deleted", "error", err)
	default:
		return err
	}
	return podnet.Teardown(ctx, s.deps(dp), s.owner())
}
