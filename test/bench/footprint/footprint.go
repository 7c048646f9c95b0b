// SPDX-License-Identifier: Apache-2.0

// Package footprint measures how much of culvert is on a node with a pod: binaries, memory of
// the tables and programs, processes.
package footprint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// What is measured.
const (
	Binaries  report.Metric = "plugins MB"
	Executed  report.Metric = "binaries an ADD executes"
	Maps      report.Metric = "tables MB"
	Programs  report.Metric = "programs MB"
	Processes report.Metric = "processes that stay"
)

// Name of the part.
const Name = "footprint"

const (
	ours   = "culvert"
	theirs = "bridge, portmap, bandwidth"
)

// Columns of the part's table.
func Columns() []report.Column {
	return []report.Column{{Metric: Binaries}, {Metric: Executed}, {Metric: Maps}, {Metric: Programs}, {Metric: Processes}}
}

// Bars are M13.
func Bars() []report.Bar {
	return []report.Bar{
		{ID: "M13", Metric: Binaries, Path: ours, Most: 8},
		{ID: "M13", Metric: Maps, Path: ours, Most: 32},
		{ID: "M13", Metric: Processes, Path: ours},
	}
}

// Run measures once: nothing here changes from round to round.
func Run(ctx context.Context, bin node.Binaries, progress *report.Progress) (*report.Part, error) {
	progress.Step(Name, 0, 0, "one node with a pod")
	part := &report.Part{Name: Name, Paths: []string{ours, theirs}, Rounds: []report.Round{{}},
		Method: "stripped binaries, without host-local, which both execute; memory as the kernel accounts for it, with default sizes, after the first ADD; MB are 10^6 bytes"}
	r := part.Rounds[0]
	for _, p := range []struct {
		path, dir string
		plugins   []string
	}{{ours, bin.Culvert, []string{"culvert"}}, {theirs, bin.Ref, []string{"bridge", "portmap", "bandwidth"}}} {
		size, err := sizes(p.dir, p.plugins)
		if err != nil {
			part.Fail("%s: %v", p.path, err)
			continue
		}
		r.Put(p.path, Binaries, size)
		r.Put(p.path, Executed, float64(len(p.plugins)))
	}
	if err := node1(ctx, bin, r); err != nil && ctx.Err() == nil {
		part.Fail("%s: %v", ours, err)
	}
	return part, ctx.Err()
}

func sizes(dir string, names []string) (mb float64, err error) {
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		mb += float64(info.Size()) / 1e6
	}
	return mb, nil
}

func node1(ctx context.Context, bin node.Binaries, r report.Round) (err error) {
	n, err := node.New(node.Chain{Name: "culvert", Masq: true}, bin, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if _, err := n.AddPod(ctx, node.Ports(8080, 1, "tcp")); err != nil {
		return err
	}
	tables, err := memory(n.Pins+"/v*/maps/*", ebpf.LoadPinnedMap)
	if err != nil {
		return err
	}
	programs, err := memory(n.Pins+"/v*/progs/*", ebpf.LoadPinnedProgram)
	if err != nil {
		return err
	}
	running, err := processes(bin.Culvert)
	r.Put(ours, Maps, tables)
	r.Put(ours, Programs, programs)
	r.Put(ours, Processes, float64(running))
	return err
}

// pinned is a map or a program; its information tells the kernel memory that it takes.
type pinned[I interface{ Memlock() (uint64, bool) }] interface {
	Info() (I, error)
	Close() error
}

// memory sums up that of what is pinned.
func memory[P pinned[I], I interface{ Memlock() (uint64, bool) }](pins string, open func(string, *ebpf.LoadPinOptions) (P, error)) (mb float64, err error) {
	found, err := filepath.Glob(pins)
	if err != nil || len(found) == 0 {
		return 0, fmt.Errorf("find pins %s: %d, %w", pins, len(found), err)
	}
	for _, pin := range found {
		p, err := open(pin, nil)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", pin, err)
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", pin, err)
		}
		bytes, _ := info.Memlock()
		mb += float64(bytes) / 1e6
	}
	return mb, nil
}

// processes counts those of this tree's culvert.
func processes(dir string) (int, error) {
	plugin, err := filepath.Abs(filepath.Join(dir, "culvert"))
	if err != nil {
		return 0, err
	}
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	n := 0
	for _, exe := range exes {
		if to, err := os.Readlink(exe); err == nil && strings.TrimSuffix(to, " (deleted)") == plugin {
			n++
		}
	}
	return n, err
}
