// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
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
	for _, f := range loader.Inspect(s.options()).Faults {
		faults = append(faults, f.Error())
	}
	if len(faults) > 0 {
		return unavailable(faults...)
	}
	if c.ipamType == "" {
		return nil
	}
	return s.ipam().Status(ctx)
}

// unavailable is error 50: the sentence of the first fault, and the others behind it.
func unavailable(faults ...string) error {
	return types.NewError(types.ErrPluginNotAvailable, faults[0], strings.Join(faults[1:], "; "))
}
