// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

// nodeStatus is STATUS: would an ADD succeed? It looks and repairs nothing.
func nodeStatus(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	s, err := openSession("STATUS", args, c)
	if err != nil {
		return err
	}
	defer s.close()
	var none netdev.NoSuchUplink
	if _, err := s.uplinks(); errors.As(err, &none) {
		return unavailable(err.Error() + ": correct the key uplinks, or plug the device in")
	} else if err != nil {
		return err
	}
	var faults []string
	node := loader.Inspect(s.options())
	for _, f := range node.Faults {
		faults = append(faults, f.Error())
	}
	s.warn(node.Warnings)
	if len(faults) > 0 {
		return unavailable(faults...)
	}
	if c.ipamType == "" {
		return nil
	}
	return s.ipam().Status(ctx)
}

// warn logs what keeps no pod from starting: STATUS has only errors to tell.
func (s *session) warn(warnings []loader.Fault) {
	if s.file == nil {
		return
	}
	dp, err := loader.Open(s.options())
	if err == nil {
		defer dp.Close()
	}
	more, err := podnet.Inspect(s.deps(dp), false)
	for _, f := range append(warnings, more...) {
		s.log.Warn(f.What, "remedy", f.Remedy)
	}
	if err != nil {
		s.log.Warn("node not looked at", "error", err)
	}
}

// unavailable is error 50: the sentence of the first fault, and the others behind it.
func unavailable(faults ...string) error {
	return types.NewError(types.ErrPluginNotAvailable, faults[0], strings.Join(faults[1:], "; "))
}
