// SPDX-License-Identifier: Apache-2.0

// Package plugin is what the main functions of CNI plugins have in common: a run is one verb,
// its errors have codes, a bug is an error too, and stdout carries nothing else.
package plugin

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"
)

// mostMemory is where the garbage collector sets in; a usual run ends long before.
const mostMemory = 64 << 20

// Plugin is one binary.
type Plugin struct {
	Name    string
	Version string
	What    string // "a CNI plugin"
	RunBy   string // "a container runtime"
	Verbs   skel.CNIFuncs
	Coded   func(error) *types.Error // gives a verb's error its code
}

// Main runs the verb that CNI_COMMAND names and gives the exit status.
func (p *Plugin) Main() (status int) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(mostMemory)
	defer func() {
		if r := recover(); r != nil {
			status = fail(p.panicked(r))
		}
	}()
	if os.Getenv("CNI_COMMAND") == "" {
		fmt.Fprintf(os.Stderr, "%s %s is %s for protocol versions %s; it is run by %s\n",
			p.Name, p.Version, p.What, strings.Join(cniversion.All.SupportedVersions(), ", "), p.RunBy)
	}
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    p.verb(p.Verbs.Add),
		Del:    p.verb(p.Verbs.Del),
		Check:  p.verb(p.Verbs.Check),
		GC:     p.verb(p.Verbs.GC),
		Status: p.verb(p.Verbs.Status),
	}, cniversion.All, "")
	if err != nil {
		return fail(err)
	}
	return 0
}

// verb gives a verb's errors, and panics, their codes.
func (p *Plugin) verb(do func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = p.panicked(r)
			}
		}()
		if err := do(args); err != nil {
			return p.Coded(err)
		}
		return nil
	}
}

func (p *Plugin) panicked(r any) *types.Error {
	return types.NewError(types.ErrInternal, fmt.Sprintf("%s has a bug: %v", p.Name, r), string(debug.Stack()))
}

func fail(err *types.Error) int {
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintln(os.Stderr, err, printErr)
	}
	return 1
}
