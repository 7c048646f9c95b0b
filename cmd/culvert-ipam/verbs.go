// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/address"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// add is ADD. What cannot be told to the main plugin is given back.
func add(args *skel.CmdArgs) error {
	c := call(args)
	result, version, err := c.Add()
	if err != nil {
		return err
	}
	if err := types.PrintResult(result, version); err != nil {
		return errors.Join(err, c.Del())
	}
	return nil
}

func del(args *skel.CmdArgs) error { return call(args).Del() }

func check(args *skel.CmdArgs) error { return call(args).Check() }

func gc(args *skel.CmdArgs) error { return call(args).GC() }

func nodeStatus(args *skel.CmdArgs) error { return call(args).Status() }

func call(args *skel.CmdArgs) *address.Call {
	return &address.Call{
		Stdin: args.StdinData, Args: args.Args, Container: args.ContainerID, IfName: args.IfName, Netns: args.Netns,
		Log: slog.New(slog.DiscardHandler), Pods: podnet.Witnesses,
	}
}
