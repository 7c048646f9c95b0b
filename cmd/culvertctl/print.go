// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/culvert-cni/culvert/maps"
)

// row is a line of a table; its JSON is the struct itself.
type row interface{ cells() []string }

// urgent is a row that an eye is to be drawn to.
type urgent interface{ urgency() urgency }

type urgency int

const (
	calm urgency = iota
	warning
	fatal
)

// newView is a command that prints what read finds in the tables.
func newView[R row](a *app, use, short, example string, header []string, read func(*maps.Set) ([]R, error)) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    noArgs,
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
	if a.output != "table" {
		if rows == nil {
			rows = []R{}
		}
		return a.encode(rows)
	}
	t := a.table()
	t.line(heading, header...)
	for _, r := range rows {
		how := calm
		if u, ok := any(r).(urgent); ok {
			how = u.urgency()
		}
		t.line(colours[how], r.cells()...)
	}
	return t.flush()
}

// encode prints a value as JSON or YAML; the names are those of JSON in both.
func (a *app) encode(value any) error {
	if a.output == "yaml" {
		text, err := yaml.Marshal(value)
		if err == nil {
			_, err = a.out.Write(text)
		}
		return err
	}
	e := json.NewEncoder(a.out)
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
