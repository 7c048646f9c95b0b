// SPDX-License-Identifier: Apache-2.0

// Command limit measures what limits on pods do: the rate that passes and the round trip
// beside it, for every rate, direction, protocol and peer (table); the same and the first
// second beside the reference bandwidth plugin, round by round in turn, with what
// docs/limits.md calls the bars (reference); small requests beside one and many bulk flows
// of the same pod (fairness); and both over time as a picture (plot). A bar that is
// missed is no error.
//
//	make build ref && go run ./test/bench/limit [-only table,plot] [-doc docs/limits.md]
//
// It needs root, and a machine that does nothing else.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

type options struct {
	rounds   int
	time     time.Duration
	only     string
	doc      string
	kernel   string
	emulated bool
	bin      node.Binaries
	progress io.Writer
}

func main() {
	o := options{progress: os.Stderr, emulated: netns.Emulated()}
	flag.IntVar(&o.rounds, "rounds", 7, "rounds beside the reference plugin")
	flag.DurationVar(&o.time, "time", 3*time.Second, "a cell is measured; 2.5 times that below 5 Mbit/s")
	flag.StringVar(&o.only, "only", "table,reference,fairness,plot", "parts to run")
	flag.StringVar(&o.doc, "doc", "", "document whose parts for this kernel are replaced; the picture goes beside it")
	flag.StringVar(&o.kernel, "kernel", netns.Kernel(), "what the document is to call this kernel")
	o.bin.Flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}

// run measures the parts that are asked for, and writes each when it is done.
func run(ctx context.Context, o options, out io.Writer) error {
	for part := range strings.SplitSeq(o.only, ",") {
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
		if o.doc != "" && part != "plot" {
			if err := replacePart(o.doc, part+" "+o.section(), text.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o options) tablePart(ctx context.Context, w io.Writer) error {
	rows, err := o.table(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "### %s\n\n", o.heading())
	o.writeTable(w, rows)
	return nil
}

// heading names the kernel.
func (o options) heading() string {
	if o.emulated {
		return "Kernel " + o.kernel + ", emulated: function and ceiling only"
	}
	return "Kernel " + o.kernel
}

// section is what a kernel's part of the document is found by: 6.18.44-fc is 6.18.
func (o options) section() string {
	v := strings.SplitN(o.kernel, ".", 3)
	s := strings.Join(v[:min(len(v), 2)], ".")
	if o.emulated {
		s += " emulated"
	}
	return s
}

// picture is where the plot goes.
func (o options) picture() string { return filepath.Join(filepath.Dir(o.doc), "limits.svg") }
