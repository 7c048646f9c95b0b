// SPDX-License-Identifier: Apache-2.0

// Command bench measures culvert beside the reference plugins, round by round in turn: what
// a packet's path costs (path), what the verbs cost (verbs), what limits hold (limits), and
// how much of it there is (footprint). It prints one table of figures, with the bars M1 to
// M13 beside them. A bar that is missed is no error, nor is a cell that fails: both are told.
//
//	make bench
//	make build ref && go run ./test/bench [-short] [-only path,verbs] [-out docs/bench] [-doc docs/bench.md]
//
// It needs root, and a machine that does nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/load"
	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
)

type options struct {
	short, render bool
	only, match   string
	pods          string
	rounds, cpu   int
	out, doc      string
	version       string
	bin           node.Binaries
	progress      *report.Progress
}

func main() {
	load.Main()
	o := options{progress: report.NewProgress(os.Stderr)}
	flag.BoolVar(&o.short, "short", false, "fewer rounds and cases, in three minutes")
	flag.StringVar(&o.only, "only", strings.Join(names(), ","), "parts to run")
	flag.StringVar(&o.match, "match", "", "regular expression of those paths that path measures beside the raw one")
	flag.StringVar(&o.pods, "pods", "", "pods that are on the nodes of verbs before, instead of 0,100,500")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds of each part instead of its own number")
	flag.IntVar(&o.cpu, "cpu", runtime.NumCPU()-1, "processor that clients and servers of path share")
	flag.StringVar(&o.out, "out", "bin/bench", "directory for the figures of every round (JSON) and the pictures (SVG)")
	flag.StringVar(&o.doc, "doc", "", "document whose section of results is replaced by what is in that directory")
	flag.BoolVar(&o.render, "render", false, "measure nothing: tables, pictures and document from the figures of earlier runs")
	flag.StringVar(&o.version, "version", "unknown", "of culvert")
	o.bin.Flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures each part that is asked for and keeps it, then tells of them together. What a
// document says comes from all parts that were ever kept in the directory.
func run(ctx context.Context, o options, out io.Writer) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	var failed error
	for _, p := range chosen {
		if o.render {
			break
		}
		r, err := o.measure(ctx, p)
		if ctx.Err() != nil {
			o.progress.Done()
			return errors.New("interrupted; everything is taken away")
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
			continue
		}
		if err := r.Write(o.out); err != nil {
			return err
		}
	}
	o.progress.Done()
	runs, err := o.kept()
	if err != nil {
		return err
	}
	if err := o.tell(out, runs, chosen); err != nil {
		return err
	}
	return failed
}

func (o options) chosen() ([]part, error) {
	var all []part
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("no part %q: there are %s", name, strings.Join(names(), ", "))
		}
		all = append(all, parts()[i])
	}
	return all, nil
}

// kept are the runs in the directory, by part.
func (o options) kept() (map[string]*report.Run, error) {
	runs := map[string]*report.Run{}
	for _, name := range names() {
		r, err := report.Read(o.out, name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		runs[name] = r
	}
	return runs, nil
}
