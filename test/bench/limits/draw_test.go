// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/bench/svg"
)

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

func TestRoundTrips(t *testing.T) {
	got := roundTrips([]sample{{0, time.Millisecond}, {time.Second, 0}, {9 * time.Second, time.Second}})
	if len(got) != 3 || got[0] != (svg.Point{Y: 1}) || !math.IsNaN(got[1].Y) || !math.IsNaN(got[2].Y) {
		t.Errorf("%v: want 1 ms, a lost probe, and nothing after the picture's end", got)
	}
}
