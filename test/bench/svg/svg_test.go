// SPDX-License-Identifier: Apache-2.0

package svg

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"
)

// classes counts the elements of a picture by name and class; it has to be well-formed.
func classes(t *testing.T, p Picture) map[string]int {
	t.Helper()
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if e.Name.Local == "script" {
			t.Error("a script in the picture")
		}
		for _, a := range e.Attr {
			if a.Name.Local == "class" {
				got[e.Name.Local+"."+a.Value]++
			}
		}
	}
}

func TestWrite(t *testing.T) {
	nan := math.NaN()
	got := classes(t, Picture{Title: "a < b & c", Source: "go run", Head: "<", Legend: []Label{{"culvert", "<&>"}}, Panels: []Panel{
		{Title: "curves", X: Axis{Low: 0, Most: 8}, Y: Axis{Low: 1, Most: 100, Log: true, Ticks: []Tick{{10, "<10"}}},
			Curves: []Curve{{Class: "culvert", Dots: true, Points: []Point{{0, 1}, {4, nan}, {8, 1e9}}}, {Class: "nft", Steps: true, Points: []Point{{0, 1}, {8, 1}}}}, Marks: []Mark{{10}}},
		{Title: "bars", X: Axis{Low: 0, Most: 2}, Bars: []Bar{{"a & b", "culvert", 1}, {"none", "raw", nan}, {"too much", "nft", 1e9}}, Marks: []Mark{{1}}},
	}})
	for class, want := range map[string]int{"path.culvert": 2, "path.nft": 1, "path.limit": 2, "circle.culvert": 2, "rect.culvert": 1, "rect.raw": 0, "rect.nft": 1, "path.grid": 1} {
		if got[class] != want {
			t.Errorf("%d of %s, want %d", got[class], class, want)
		}
	}
}

func TestLine(t *testing.T) {
	// A decade of two is half of a height of 200, 10 pixels are a unit across.
	p := plot{Panel: Panel{X: Axis{Low: 0, Most: 65}, Y: Axis{Low: 1, Most: 100, Log: true}}, left: right - 650, top: 0, bottom: 200}
	for _, tc := range []struct {
		name  string
		curve Curve
		want  string
	}{
		{"joined, broken, within the plot", Curve{Points: []Point{{0, 1}, {1, 10}, {2, math.NaN()}, {3, 1e6}, {99, 0.1}}}, "M90.0 200.0L100.0 100.0M120.0 0.0L740.0 200.0"},
		{"steps", Curve{Steps: true, Points: []Point{{0, 10}, {1, 1}, {2, 1}}}, "M90.0 100.0H100.0L100.0 200.0H110.0"},
		{"nothing", Curve{}, ""},
	} {
		if got := p.line(tc.curve); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
