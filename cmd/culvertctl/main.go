// SPDX-License-Identifier: Apache-2.0

// Command culvertctl shows what the datapath of this node holds. It reads the pinned
// maps; no daemon is asked. `limits set` changes the limits of a pod, `reconcile` repairs
// the node, and `uninstall` takes everything off it; the others change nothing. An
// error is one sentence on stderr, and the exit code is 1.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/loader"
)

var version = "unknown" // set by the linker

func main() {
	if err := newRoot(os.Stdout, monotonic).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "culvertctl:", err)
		os.Exit(1)
	}
}

// app is what every view needs.
type app struct {
	pinPath string
	output  string        // table or json
	now     time.Duration // CLOCK_MONOTONIC, as rows have it
	out     io.Writer
}

func newRoot(out io.Writer, clock func() time.Duration) *cobra.Command {
	a := &app{out: out, now: clock()}
	root := &cobra.Command{
		Use:           "culvertctl",
		Short:         "Show what the culvert datapath of this node holds, change limits, repair and uninstall",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "table" && a.output != "json" {
				return fmt.Errorf("output %q is unknown: use table or json", a.output)
			}
			return nil
		},
	}
	root.SetOut(out)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %s --help", err, c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.pinPath, "pin-path", loader.DefaultPinPath, "directory of the pins, as in the network's configuration")
	flags.StringVarP(&a.output, "output", "o", "table", "table or json")
	root.AddCommand(
		newStatus(a), newPods(a), newHostports(a), newLimits(a), newFlows(a), newVersion(a),
		newReconcile(a), newUpgrade(a), newUninstall(a),
	)
	return root
}

func (a *app) options() loader.Options { return loader.Options{PinPath: a.pinPath} }

// open opens the maps; the error says what to do.
func (a *app) open() (*loader.Datapath, error) { return loader.Open(a.options()) }

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
