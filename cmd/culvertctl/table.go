// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// Colours of whole lines; "": that of the terminal.
const (
	heading = "1"
	yellow  = "33"
	red     = "31"
)

var colours = map[urgency]string{warning: yellow, fatal: red}

// table aligns cells in columns, and colours lines afterwards: what a colour costs in
// bytes must not count as width.
type table struct {
	out     io.Writer
	colour  bool
	text    bytes.Buffer
	columns *tabwriter.Writer
	colours []string
}

func (a *app) table() *table {
	t := &table{out: a.out, colour: a.colour}
	t.columns = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	return t
}

// line adds a line; an empty cell is a dash.
func (t *table) line(colour string, cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		if i > 0 {
			fmt.Fprint(t.columns, "\t")
		}
		fmt.Fprint(t.columns, c)
	}
	fmt.Fprintln(t.columns)
	t.colours = append(t.colours, colour)
}

func (t *table) flush() error {
	if err := t.columns.Flush(); err != nil {
		return err
	}
	if !t.colour {
		_, err := t.text.WriteTo(t.out)
		return err
	}
	for _, colour := range t.colours {
		line, _ := t.text.ReadString('\n')
		if colour != "" {
			line = "\x1b[" + colour + "m" + strings.TrimSuffix(line, "\n") + "\x1b[0m\n"
		}
		if _, err := io.WriteString(t.out, line); err != nil {
			return err
		}
	}
	return nil
}

// coloured says whether colours are for this reader: a terminal that knows them, whose
// user has not set NO_COLOR.
func coloured(out io.Writer) bool {
	return terminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
