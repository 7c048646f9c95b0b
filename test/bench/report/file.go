// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Run is a part and where and when it was measured: a file below docs/bench.
type Run struct {
	Date    time.Time `json:"date"`
	Took    string    `json:"took"`
	Kernel  string    `json:"kernel"`
	Machine string    `json:"machine"`
	Version string    `json:"version"` // of culvert
	Short   bool      `json:"short"`
	Part    *Part     `json:"part"`
}

// file is how a run is kept: figures are lists, one entry a round, null where there is none.
type file struct {
	Run
	Figures map[string]map[Metric][]*float64 `json:"figures"`
}

// Write puts the run into a directory as NAME.json.
func (r *Run) Write(dir string) error {
	head, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("\n}")))
	b.WriteString(",\n \"figures\": {")
	for i, path := range r.Part.measured() {
		fmt.Fprintf(&b, "%s\n  %q: {", comma(i), path)
		for j, m := range r.Part.metrics(path) {
			list, err := json.Marshal(r.Part.figures(path, m))
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s\n   %q: %s", comma(j), m, list)
		}
		b.WriteString("\n  }")
	}
	b.WriteString("\n }\n}\n")
	return replace(filepath.Join(dir, r.Part.Name+".json"), b.Bytes())
}

func comma(i int) string { return map[bool]string{true: ","}[i > 0] }

// measured are the paths that have figures, sorted, so that a file changes where a figure does.
func (p *Part) measured() []string {
	var names []string
	for _, r := range p.Rounds {
		for path := range r {
			names = append(names, path)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (p *Part) metrics(path string) []Metric {
	var names []Metric
	for _, r := range p.Rounds {
		for m := range r[path] {
			names = append(names, m)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// figures have five digits.
func (p *Part) figures(path string, m Metric) []*float64 {
	var list []*float64
	for _, r := range p.Rounds {
		v, ok := r[path][m]
		if !ok {
			list = append(list, nil)
			continue
		}
		if v != 0 {
			scale := math.Pow10(4 - int(math.Floor(math.Log10(math.Abs(v)))))
			v = math.Round(v*scale) / scale
		}
		list = append(list, &v)
	}
	return list
}

// Read is the run that Write put there.
func Read(dir, name string) (*Run, error) {
	at := filepath.Join(dir, name+".json")
	b, err := os.ReadFile(at)
	if err != nil {
		return nil, err
	}
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	if f.Part == nil {
		return nil, fmt.Errorf("read %s: no part in it", at)
	}
	for path, metrics := range f.Figures {
		for m, list := range metrics {
			for i, v := range list {
				for len(f.Part.Rounds) <= i {
					f.Part.Rounds = append(f.Part.Rounds, Round{})
				}
				if v != nil {
					f.Part.Rounds[i].Put(path, m, *v)
				}
			}
		}
	}
	return &f.Run, nil
}

// replace writes a file so that it is never half there.
func replace(name string, content []byte) error {
	if err := os.WriteFile(name+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// ReplaceSection puts text between the markers of a section in a document; a section that
// is not there yet goes to its end. Everything else stays as it is.
func ReplaceSection(file, section, text string) error {
	doc, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := replaced(string(doc), section, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return replace(file, []byte(changed))
}

// replaced: what ends a section has the words after the colon.
func replaced(doc, section, text string) (string, error) {
	_, what, _ := strings.Cut(section, ": ")
	begin, end := fmt.Sprintf("<!-- %s -->\n", section), fmt.Sprintf("<!-- end: %s -->\n", what)
	block := begin + strings.TrimSpace(text) + "\n" + end
	head, rest, ok := strings.Cut(doc, begin)
	if !ok {
		return strings.TrimRight(doc, "\n") + "\n\n" + block, nil
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no %q", strings.TrimSpace(end))
	}
	return head + block + tail, nil
}
