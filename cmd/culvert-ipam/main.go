// SPDX-License-Identifier: Apache-2.0

// Command culvert-ipam is a CNI IPAM plugin for any main plugin. What it gives is kept in a
// kernel map that is pinned beside culvert's own; nothing is written to disk. Stdout carries
// the result or the error, nothing else.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/culvert-cni/culvert/cmd/internal/address"
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
		fmt.Fprintf(os.Stderr, "culvert-ipam %s is a CNI IPAM plugin for protocol versions %s; it is run by a main plugin\n",
			version, strings.Join(cniversion.All.SupportedVersions(), ", "))
	}
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    verb(add),
		Del:    verb(del),
		Check:  verb(check),
		GC:     verb(gc),
		Status: verb(nodeStatus),
	}, cniversion.All, "")
	if err != nil {
		return fail(err)
	}
	return 0
}

// verb gives a verb's errors their codes.
func verb(do func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = panicked(r)
			}
		}()
		if err := do(args); err != nil {
			return address.Coded(err)
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
	return types.NewError(types.ErrInternal, fmt.Sprintf("culvert-ipam has a bug: %v", r), string(debug.Stack()))
}
