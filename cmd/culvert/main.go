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
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

// version is set by the linker.
var version = "unknown"

// mostMemory is where the garbage collector sets in; a usual run ends long before.
const mostMemory = 64 << 20

func main() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(mostMemory)
	os.Exit(run())
}

func run() (status int) {
	defer func() {
		if r := recover(); r != nil {
			status = fail(panicked(r))
		}
	}()
	if os.Getenv("CNI_COMMAND") == "" {
		fmt.Fprintf(os.Stderr, "culvert %s is a CNI plugin for protocol versions %s; it is run by a container runtime\n",
			version, strings.Join(cniversion.All.SupportedVersions(), ", "))
	}
	// A runtime that stops waiting kills us; an administrator may be kinder, and then
	// ADD takes back what it did.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    verb(ctx, add),
		Del:    verb(ctx, del),
		Check:  verb(ctx, check),
		GC:     verb(ctx, gc),
		Status: verb(ctx, nodeStatus),
	}, cniversion.All, "")
	if err != nil {
		return fail(err)
	}
	return 0
}

// verb gives a verb its context, and its errors their codes.
func verb(ctx context.Context, do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = panicked(r)
			}
		}()
		if err := do(ctx, args); err != nil {
			return coded(err)
		}
		return nil
	}
}

func fail(err *types.Error) int {
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintln(os.Stderr, err, printErr)
	}
	return 1
}

func panicked(r any) *types.Error {
	return types.NewError(types.ErrInternal, fmt.Sprintf("culvert has a bug: %v", r), string(debug.Stack()))
}
