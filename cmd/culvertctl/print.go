// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

// row is a line of a table; its JSON is the struct itself.
type row interface{ cells() []string }

// newView is a command that prints what read finds in the tables.
func newView[R row](a *app, use, short string, header []string, read func(*maps.Set) ([]R, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			d, err := a.open()
			if err != nil {
				return err
			}
			defer d.Close()
			rows, err := read(d.Maps)
			if err != nil {
				return err
			}
			return show(a, header, rows)
		},
	}
}

// show prints rows as the user asked for them. No rows are a header alone, or [].
func show[R row](a *app, header []string, rows []R) error {
	if a.output == "json" {
		if rows == nil {
			rows = []R{}
		}
		return showJSON(a.out, rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, r := range rows {
		cells := r.cells()
		for i, c := range cells {
			if c == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func showJSON(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// bits prints a rate or size as people write it: 10M, 1.5G.
func bits(n uint64) string {
	value, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G", "T"} {
		if value < 1000 {
			break
		}
		value, unit = value/1000, u
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", value), "0"), ".") + unit
}
