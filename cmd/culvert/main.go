// SPDX-License-Identifier: Apache-2.0

// A run is too short to look for a limit of processors: the runtime would read the list of
// mounts for it, and a node with hundreds of pods has thousands.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command culvert is the CNI plugin. It reads its configuration and the verb as CNI says
// (CNI_COMMAND, stdin), does its work and is gone: nothing of it stays but rows in
// kernel maps, devices and routes. Stdout carries the result or the error, nothing else.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/containernetworking/cni/pkg/skel"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/plugin"
)

// version is set by the linker.
var version = "unknown"

func main() {
	// A runtime that stops waiting kills us; an administrator may be kinder, and then
	// ADD takes back what it did.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	verb := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return do(ctx, args) }
	}
	p := plugin.Plugin{
		Name: "culvert", Version: version, What: "a CNI plugin", RunBy: "a container runtime", Coded: coded,
		Verbs: skel.CNIFuncs{Add: verb(add), Del: verb(del), Check: verb(check), GC: verb(gc), Status: verb(nodeStatus)},
	}
	status := p.Main()
	stop()
	os.Exit(status)
}
