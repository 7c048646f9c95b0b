// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
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
	got, err := replaced(doc, "bench/limit: table 6.18", "\nnew\nlines\n\n")
	want := strings.Replace(doc, "old\n", "new\nlines\n", 1)
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	again, err := replaced(got, "bench/limit: table 6.18", "new\nlines")
	if err != nil || again != want {
		t.Errorf("again: %v\n%s\nwant\n%s", err, again, want)
	}
	got, err = replaced(doc, "bench/limit: table 6.12 emulated", "x")
	if want := doc + "\n<!-- bench/limit: table 6.12 emulated -->\nx\n<!-- end: table 6.12 emulated -->\n"; err != nil || got != want {
		t.Errorf("new part: %v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := replaced("<!-- bench/limit: table 7.0 -->\nhalf\n", "bench/limit: table 7.0", "x"); err == nil {
		t.Errorf("a part without an end: %q, want an error", got)
	}
}

// What is kept is read again, with gaps where nothing was measured.
func TestWriteRead(t *testing.T) {
	part := &Part{Name: "path", Method: "m", Base: "raw", Paths: []string{"raw", "ours"}, Failed: []string{"why"}}
	for range 3 {
		part.Rounds = append(part.Rounds, Round{})
	}
	part.Rounds[0].Put("raw", "us", 10.123456)
	part.Rounds[0].Put("raw", "lost", 0)
	part.Rounds[2].Put("raw", "us", 1234567)
	part.Rounds[2].Put("ours", "us", math.NaN())
	want := &Run{Date: time.Unix(1e9, 0).UTC(), Took: "1m", Kernel: "6.18", Machine: "big", Version: "v1", Part: part}
	dir := t.TempDir()
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, "path")
	if err != nil {
		b, _ := os.ReadFile(filepath.Join(dir, "path.json"))
		t.Fatalf("%v\n%s", err, b)
	}
	rounds := []Round{{"raw": {"us": 10.123, "lost": 0}}, {}, {"raw": {"us": 1234600}}}
	if !reflect.DeepEqual(got.Part.Rounds, rounds) {
		t.Errorf("rounds %v, want %v", got.Part.Rounds, rounds)
	}
	got.Part.Rounds = part.Rounds
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := Read(dir, "verbs"); !os.IsNotExist(err) {
		t.Errorf("read what is not there: %v", err)
	}
}
