// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/report"
)

// tell prints what the chosen parts measured, draws the pictures, and writes the document.
func (o options) tell(out io.Writer, runs map[string]*report.Run, chosen []part) error {
	if err := o.print(out, runs, chosen); err != nil {
		return err
	}
	if err := o.draw(runs); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nfigures of every round and pictures: %s\n", o.out)
	if o.doc == "" {
		return nil
	}
	var text bytes.Buffer
	if err := o.print(&text, runs, parts()); err != nil {
		return err
	}
	return report.ReplaceSection(o.doc, "bench: results", text.String())
}

// print has the table of the bars, how each part was measured, and its figures.
func (o options) print(w io.Writer, runs map[string]*report.Run, of []part) error {
	var bars report.Bars
	for _, p := range of {
		r := runs[p.name]
		if r == nil {
			fmt.Fprintf(w, "%s was not measured.\n\n", p.title)
			continue
		}
		fmt.Fprintf(w, "### %s\n\n%s, kernel %s, %s; culvert %s. %s. Took %s.\n\n", p.title,
			r.Date.Format("2006-01-02 15:04 MST"), r.Kernel, r.Machine, r.Version, r.Part.Method, r.Took)
		if r.Short {
			fmt.Fprintf(w, "**A short run: fewer rounds and cases, its figures are rough.**\n\n")
		}
		if err := r.Part.Table(p.columns).Write(w); err != nil {
			return err
		}
		for _, f := range r.Part.Failed {
			fmt.Fprintf(w, "\nNot measured: %s\n", strings.Join(strings.Fields(f), " "))
		}
		fmt.Fprintln(w)
		bars.Judge(r.Part, p.bars, r.Short)
	}
	fmt.Fprintf(w, "### Bars\n\n")
	if err := bars.Table.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of %d bars missed, %d not measured.\n", bars.Missed, max(len(bars.Table)-1, 0), bars.Absent)
	return err
}
