// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestReplaced(t *testing.T) {
	const doc = `# Limits
before
<!-- bench/limit: table 6.18 -->
old
<!-- end: table 6.18 -->
between
<!-- bench/limit: table 6.1 emulated -->
other
<!-- end: table 6.1 emulated -->
after
`
	got, err := replaced(doc, "table 6.18", "\nnew\nlines\n\n")
	want := strings.Replace(doc, "old\n", "new\nlines\n", 1)
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	again, err := replaced(got, "table 6.18", "new\nlines")
	if err != nil || again != want {
		t.Errorf("again: %v\n%s\nwant\n%s", err, again, want)
	}
	got, err = replaced(doc, "table 6.12 emulated", "x")
	if want := doc + "\n<!-- bench/limit: table 6.12 emulated -->\nx\n<!-- end: table 6.12 emulated -->\n"; err != nil || got != want {
		t.Errorf("new part: %v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := replaced("<!-- bench/limit: table 7.0 -->\nhalf\n", "table 7.0", "x"); err == nil {
		t.Errorf("a part without an end: %q, want an error", got)
	}
}

func TestDraw(t *testing.T) {
	var out bytes.Buffer
	err := draw(&out, []trace{
		{"reference", []float64{2e10, 1e7, 0}, []sample{{0, time.Millisecond}, {20 * time.Millisecond, 0}, {40 * time.Millisecond, 2 * time.Second}}},
		{"culvert", []float64{1e7, 1e7}, []sample{{0, 9 * time.Millisecond}, {20 * time.Millisecond, 8 * time.Millisecond}, {9 * time.Second, time.Second}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	paths := 0
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			if e.Name.Local == "script" {
				t.Error("a script in the picture")
			}
			for _, a := range e.Attr {
				if a.Name.Local == "class" && (a.Value == "culvert" || a.Value == "reference") {
					paths++
				}
			}
		}
	}
	if paths != 6 { // rate, round trip and legend of both
		t.Errorf("%d curves, want 6", paths)
	}
}

func TestLines(t *testing.T) {
	// 10 Mbit/s is one decade of five above the lower edge, 81.25 pixels are a second.
	if got, want := steps([]float64{1e7, 1e6}), "M90.0 202.0H98.1L98.1 240.0H106.2"; got != want {
		t.Errorf("steps: %s, want %s", got, want)
	}
	got := line([]sample{{0, time.Millisecond}, {time.Second, 0}, {2 * time.Second, 100 * time.Millisecond}, {3 * time.Second, time.Hour}, {9 * time.Second, time.Second}})
	if want := "M90.0 416.7M252.5 353.3L333.8 290.0"; got != want {
		t.Errorf("line: %s, want %s", got, want)
	}
}
