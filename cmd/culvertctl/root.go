// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/loader"
)

const rootHelp = `culvertctl shows what the culvert datapath of this node holds and counts, and changes
the little that can be changed. It reads the pinned maps; no daemon is asked.

A pod is named by one of its addresses, by its container's id or the beginning of that,
or by ID/INTERFACE.

Exit codes: 0 done; 1 it could not be done, or status found a fault; 2 the command line
is wrong. An error is one sentence on stderr that says what to do.
Colours appear on a terminal only, and not if NO_COLOR is set.`

const rootExample = `  culvertctl status                          # what is loaded, what is wrong, what to do about it
  culvertctl hostports                       # which pod a port of the node leads to
  culvertctl pods -o json | jq -r '.[].address'
  culvertctl limits set 10.88.0.3 --ingress 20M`

// app is what every view needs.
type app struct {
	pinPath string
	output  string        // table, json or yaml
	now     time.Duration // CLOCK_MONOTONIC, as rows have it
	out     io.Writer
	colour  bool
}

// outputs are the values of --output.
var outputs = []string{"table", "json", "yaml"}

func newRoot(out io.Writer, clock func() time.Duration) *cobra.Command {
	a := &app{out: out, now: clock(), colour: coloured(out)}
	root := &cobra.Command{
		Use:           "culvertctl",
		Short:         "Show what the culvert datapath of this node holds, change limits, repair and uninstall",
		Long:          rootHelp,
		Example:       rootExample,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(outputs, a.output) {
				return usage("output %q is unknown: use table, json or yaml", a.output)
			}
			return nil
		},
	}
	root.SetOut(out)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w: see %s --help", err, c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.pinPath, "pin-path", loader.DefaultPinPath, "directory of the pins, as in the network's configuration")
	flags.StringVarP(&a.output, "output", "o", "table", "table, json or yaml")
	addGroup(root, "look", "Look:",
		newStatus(a), newPods(a), newAddresses(a), newHostports(a), newLimits(a), newFlows(a), newRemotes(a), newCounters(a), newTrace(a), newTop(a), newMetrics(a))
	addGroup(root, "change", "Change:",
		newReconcile(a), newUpgrade(a), newUninstall(a))
	root.AddCommand(newVersion(a))
	addCompletion(root)
	return root
}

func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

func (a *app) options() loader.Options { return loader.Options{PinPath: a.pinPath} }

// open opens the maps; the error says what to do.
func (a *app) open() (*loader.Datapath, error) { return loader.Open(a.options()) }

// usageError is a command line that means nothing.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitCode(err error) int {
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		return 2
	}
	return 1
}

// noArgs refuses arguments; where one may be a verb that was mistyped, it names the verb.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasSubCommands() {
		return usage("%s takes no argument, and got %q: see %[1]s --help", c.CommandPath(), args[0])
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usage("unknown command %q: see %s --help", args[0], c.CommandPath())
}
