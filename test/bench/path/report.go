// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

func report(out io.Writer, paths []*path, rounds []round) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "path\t%s\tx raw\t%s\tx raw\t%s\tx raw\t%s\tx raw\t%s\t%s\n", rr, crr, udp, stream, bpfThere, "back")
	for _, p := range paths {
		fmt.Fprint(w, p.name)
		for _, m := range []metric{rr, crr, udp, stream} {
			fmt.Fprintf(w, "\t%s\t%s", stats.Figure(stats.Median(stats.Column(rounds, p.name, m))),
				stats.Figure(stats.Ratio(stats.Column(rounds, p.name, m), stats.Column(rounds, raw, m))))
		}
		for _, m := range []metric{bpfThere, bpfBack} {
			fmt.Fprintf(w, "\t%s", stats.Figure(stats.Median(stats.Column(rounds, p.name, m))))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	all := bars()
	slices.SortStableFunc(all, func(a, b bar) int { return cmp.Compare(a.id, b.id) })
	fmt.Fprintln(w, "bar\twhat\tof\tto\tmost\tis\t")
	for _, b := range all {
		v := b.value(rounds)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.id, b.m, b.path, b.to, stats.Figure(b.most), stats.Figure(v), b.verdict(v))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range paths {
		if n := stats.Median(stats.Column(rounds, p.name, lost)); n > 0 {
			fmt.Fprintf(out, "%s: %.0f of a million datagrams were lost\n", p.name, n)
		}
	}
	return nil
}
