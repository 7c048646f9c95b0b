// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

// Table is Markdown whose columns are as wide as they need: a terminal shows it well too.
type Table [][]string

// Row adds one.
func (t *Table) Row(cells ...string) { *t = append(*t, cells) }

// Write has the first row as the head.
func (t Table) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	for i, row := range t {
		fmt.Fprintf(tw, "| %s\t|\n", strings.Join(row, "\t| "))
		if i == 0 {
			fmt.Fprintf(tw, "|%s\n", strings.Repeat(" ---\t|", len(row)))
		}
	}
	return tw.Flush()
}

// Column says what is printed of each path.
type Column struct {
	Metric Metric
	Ratio  bool // to the part's base too
}

// Table is one line a path. Columns and paths without a figure are left out.
func (p *Part) Table(columns []Column) Table {
	head := []string{""}
	var cells [][]string // by column, by path
	for _, c := range columns {
		var own, ratio []string
		for _, path := range p.Paths {
			own = append(own, figure(p.Value(path, c.Metric)))
			ratio = append(ratio, figure(p.ToBase(path, c.Metric)))
		}
		if strings.Join(own, "") == "" {
			continue
		}
		head, cells = append(head, string(c.Metric)), append(cells, own)
		if c.Ratio {
			head, cells = append(head, "x "+p.Base), append(cells, ratio)
		}
	}
	t := Table{head}
	for i, path := range p.Paths {
		row := []string{path}
		for _, c := range cells {
			row = append(row, c[i])
		}
		if strings.Join(row[1:], "") != "" {
			t.Row(row...)
		}
	}
	return t
}

// figure is a plain 0 where nothing was counted.
func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	return stats.Figure(v)
}

// Bars is the table of the bars: each with its figure, what it is beside, and the floor.
type Bars struct {
	Table  Table
	Missed int
	Absent int // not measured in this run
}

// Judge adds the bars of a part. Those that were not measured are left out if the run was
// a short one, which measures less.
func (t *Bars) Judge(p *Part, bars []Bar, short bool) {
	if t.Table == nil {
		t.Table.Row("bar", "what", "of", "beside", "is", "bar", "", "floor", "")
	}
	for _, b := range bars {
		v := b.Value(p)
		switch {
		case math.IsNaN(v):
			t.Absent++
			if short {
				continue
			}
		case b.Verdict(v) != "ok":
			t.Missed++
		}
		beside := ""
		if w := p.Value(b.Path, b.Beside); b.Beside != "" && !math.IsNaN(w) {
			beside = fmt.Sprintf("%s %s", b.Beside, figure(w))
		}
		t.Table.Row(b.ID, string(b.Metric), b.Path, b.To, figure(v), b.Bound(), b.Verdict(v), figure(b.FloorValue(p)), beside)
	}
}
