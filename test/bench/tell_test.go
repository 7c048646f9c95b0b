// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/bench/path"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// keep puts a run of the part path into a directory: a raw pair of 10 us, culvert's hostPort
// of 11 and 50 us, one failure.
func keep(t *testing.T, short bool) (dir string) {
	t.Helper()
	p := &report.Part{Name: path.Name, Method: "one round", Base: "raw veth pair", Paths: []string{"raw veth pair", path.HostPort("culvert", 0)},
		Rounds: []report.Round{{}}, Failed: []string{"round 1: it\nbroke"}}
	r := p.Rounds[0]
	r.Put(p.Paths[0], path.RR, 10)
	r.Put(p.Paths[0], path.CRR, 50)
	r.Put(p.Paths[1], path.RR, 11)
	r.Put(p.Paths[1], path.CRR, 70)
	dir = t.TempDir()
	run := report.Run{Date: time.Unix(0, 0).UTC(), Took: "1s", Kernel: "6.18", Machine: "2 x slow", Version: "v1", Short: short, Part: p}
	if err := run.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What was kept is printed, drawn, and put into the document, where the parts that were
// never measured say so.
func TestRender(t *testing.T) {
	dir := keep(t, false)
	doc := filepath.Join(dir, "bench.md")
	if err := os.WriteFile(doc, []byte("# B\n<!-- bench: results -->\nold\n<!-- end: results -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := options{render: true, out: dir, doc: doc, only: path.Name, progress: report.NewProgress(io.Discard)}
	if err := run(context.Background(), o, &out); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]struct {
		text       string
		has, lacks []string
	}{
		"output":   {out.String(), []string{"1970-01-01 00:00 UTC, kernel 6.18, 2 x slow; culvert v1", "Not measured: round 1: it broke", "| 1.100 |", "| 1.400 | <= 1.22 | MISS by 14.8 % |"}, []string{"short"}},
		"document": {string(written), []string{"# B\n", "after\n", "| 1.400 | <= 1.22 | MISS by 14.8 % |", "Verbs was not measured."}, []string{"old"}},
	} {
		text := strings.Join(strings.Fields(in.text), " ")
		for _, want := range in.has {
			if !strings.Contains(text, strings.TrimSpace(want)) {
				t.Errorf("%s: no %q in\n%s", name, want, in.text)
			}
		}
		for _, no := range in.lacks {
			if strings.Contains(text, no) {
				t.Errorf("%s: %q in\n%s", name, no, in.text)
			}
		}
	}
	for _, name := range []string{"path.svg", "hostports.svg"} {
		wellFormed(t, filepath.Join(dir, name))
	}
}

func wellFormed(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := xml.NewDecoder(f); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// A short run says so, and leaves out the bars that it does not measure.
func TestRenderShort(t *testing.T) {
	var out bytes.Buffer
	o := options{render: true, out: keep(t, true), only: path.Name, progress: report.NewProgress(io.Discard)}
	if err := run(context.Background(), o, &out); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "A short run") || strings.Contains(s, "| not measured") {
		t.Errorf("not a short run's report:\n%s", s)
	}
}

func TestChosen(t *testing.T) {
	if _, err := (options{only: "path,bananas"}).chosen(); err == nil {
		t.Error("a part that is not there can be chosen")
	}
	if got, err := (options{only: "footprint,path"}).chosen(); err != nil || len(got) != 2 || got[1].name != path.Name {
		t.Errorf("%v, %v", got, err)
	}
}
