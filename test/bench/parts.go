// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-cni/culvert/test/bench/footprint"
	"github.com/culvert-cni/culvert/test/bench/limits"
	"github.com/culvert-cni/culvert/test/bench/path"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/bench/verbs"
	"github.com/culvert-cni/culvert/test/netns"
)

// part is one that can be run alone.
type part struct {
	name    string
	title   string
	measure func(context.Context, options) (*report.Part, error)
	columns []report.Column
	bars    []report.Bar
}

func parts() []part {
	return []part{
		{path.Name, "Paths", measurePath, path.Columns(), path.Bars()},
		{verbs.Name, "Verbs", measureVerbs, verbs.Columns(), verbs.Bars()},
		{limits.Name, "Limits", measureLimits, limits.Columns(), limits.Bars()},
		{footprint.Name, "Footprint", measureFootprint, footprint.Columns(), footprint.Bars()},
	}
}

func names() []string {
	var all []string
	for _, p := range parts() {
		all = append(all, p.name)
	}
	return all
}

func (o options) measure(ctx context.Context, p part) (*report.Run, error) {
	start := time.Now()
	measured, err := p.measure(ctx, o)
	if err != nil {
		return nil, err
	}
	return &report.Run{Date: start.UTC().Truncate(time.Second), Took: time.Since(start).Round(time.Second).String(), Kernel: netns.Kernel(),
		Machine: machine(), Version: o.version, Short: o.short, Part: measured}, nil
}

// either is n of a full run, `short` of a short one, unless the command line says.
func (o options) either(n, short int) int {
	switch {
	case o.rounds > 0:
		return o.rounds
	case o.short:
		return short
	}
	return n
}

func measurePath(ctx context.Context, o options) (*report.Part, error) {
	cell := map[bool]time.Duration{false: 600 * time.Millisecond, true: 300 * time.Millisecond}[o.short]
	match, err := regexp.Compile(o.match)
	if err != nil {
		return nil, err
	}
	return path.Run(ctx, path.Options{Rounds: o.either(7, 3), Time: cell, CPU: o.cpu, Short: o.short, Match: match, Budget: 12 * time.Minute, Bin: o.bin, Progress: o.progress})
}

func measureVerbs(ctx context.Context, o options) (*report.Part, error) {
	pods, err := o.counts()
	if err != nil {
		return nil, err
	}
	return verbs.Run(ctx, verbs.Options{Rounds: o.either(7, 3), Parallel: o.either(3, 2), Short: o.short, Pods: pods, Budget: 10 * time.Minute, Bin: o.bin, Progress: o.progress})
}

// counts of pods on the nodes of verbs.
func (o options) counts() ([]int, error) {
	switch {
	case o.pods == "" && o.short:
		return verbs.Pods[:1], nil
	case o.pods == "":
		return verbs.Pods, nil
	}
	var all []int
	for s := range strings.SplitSeq(o.pods, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("-pods: %w", err)
		}
		all = append(all, n)
	}
	return all, nil
}

func measureLimits(ctx context.Context, o options) (*report.Part, error) {
	cell := map[bool]time.Duration{false: 3 * time.Second, true: 2 * time.Second}[o.short]
	return limits.Contest(ctx, limits.Options{Rounds: o.either(3, 1), Time: cell, Short: o.short, Budget: 5 * time.Minute, Bin: o.bin,
		Step: func(done, total int, what string) { o.progress.Step(limits.Name, done, total, what) }})
}

func measureFootprint(ctx context.Context, o options) (*report.Part, error) {
	return footprint.Run(ctx, o.bin, o.progress)
}

// machine is what /proc says.
func machine() string {
	model := "processors"
	b, _ := os.ReadFile("/proc/cpuinfo")
	for l := range bytes.Lines(b) {
		if name, ok := bytes.CutPrefix(l, []byte("model name")); ok {
			model = string(bytes.TrimLeft(bytes.TrimSpace(name), ": \t"))
			break
		}
	}
	memory := 0
	b, _ = os.ReadFile("/proc/meminfo")
	_, _ = fmt.Sscanf(string(b), "MemTotal: %d kB", &memory)
	return fmt.Sprintf("%d x %s, %d GB, %s", runtime.NumCPU(), model, (memory+1<<19)>>20, runtime.GOARCH)
}
