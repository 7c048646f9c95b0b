// SPDX-License-Identifier: Apache-2.0

// Package limits measures what limits on pods do: the rate that passes and the round trip
// beside it, alone and beside the reference bandwidth plugin.
package limits

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// Options of a run.
type Options struct {
	Rounds   int           // beside the reference plugin
	Time     time.Duration // a cell is measured
	Only     string        // parts, for docs/limits.md
	Doc      string        // whose sections for this kernel are replaced; may be empty
	Kernel   string        // what the document is to call this kernel
	Emulated bool
	Bin      node.Binaries
	Short    bool          // of Contest: 10 Mbit/s alone, TCP, and containerd's burst
	Budget   time.Duration // of Contest: after which no round begins but the first
	Progress io.Writer
	Step     func(done, total int, what string) // of Contest
}

// Run measures the parts that are asked for, and writes each when it is done.
func Run(ctx context.Context, o Options, out io.Writer) error {
	for part := range strings.SplitSeq(o.Only, ",") {
		var text bytes.Buffer
		var err error
		switch part {
		case "table":
			err = o.tablePart(ctx, &text)
		case "reference":
			err = o.referencePart(ctx, &text)
		case "fairness":
			err = o.fairnessPart(ctx, &text)
		case "plot":
			err = o.plotPart(ctx, &text)
		default:
			err = fmt.Errorf("no such part")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		fmt.Fprintf(out, "%s\n", text.Bytes())
		if o.Doc != "" && part != "plot" {
			if err := report.ReplaceSection(o.Doc, "bench/limit: "+part+" "+o.section(), text.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o Options) tablePart(ctx context.Context, w io.Writer) error {
	rows, err := o.table(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "### %s\n\n", o.heading())
	o.writeTable(w, rows)
	return nil
}

// heading names the kernel.
func (o Options) heading() string {
	if o.Emulated {
		return "Kernel " + o.Kernel + ", emulated: function and ceiling only"
	}
	return "Kernel " + o.Kernel
}

// section is what a kernel's part of the document is found by: 6.18.44-fc is 6.18.
func (o Options) section() string {
	v := strings.SplitN(o.Kernel, ".", 3)
	s := strings.Join(v[:min(len(v), 2)], ".")
	if o.Emulated {
		s += " emulated"
	}
	return s
}

// picture is where the plot goes.
func (o Options) picture() string { return filepath.Join(filepath.Dir(o.Doc), "limits.svg") }
