// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// matrix is a table of docs/matrix.md: a row for each caller, a column for each way
// to call.
type matrix struct {
	called []string
	rows   []matrixRow
}

type matrixRow struct {
	caller string
	cells  []matrixCell
}

// matrixCell is what is expected, and of which reference backends something else, by
// family.
type matrixCell struct {
	want [2]string
	refs []matrixRef
}

// matrixRef is a difference, and the number of its reason.
type matrixRef struct {
	who, note string
	want      [2]string
}

// of is the expectation of culvert (backend ""), or of a backend of portmap.
func (c matrixCell) of(backend string, family int) string {
	for _, r := range c.refs {
		if backend != "" && (r.who == "ref" || r.who == "ref-"+backend) {
			return r.want[family/6]
		}
	}
	return c.want[family/6]
}

const valueForm = `([^;/[]+?)(?: / ([^;/[]+?))?`

var (
	cellForm = regexp.MustCompile(`^` + valueForm + `$`)
	refForm  = regexp.MustCompile(`^(ref|ref-iptables|ref-nftables) ` + valueForm + ` \[(\d+)\]$`)
	noteForm = regexp.MustCompile(`^(\d+)\. \S`)
)

func parseCell(text string) (c matrixCell, err error) {
	first, rest, differs := strings.Cut(text, "; ")
	m := cellForm.FindStringSubmatch(first)
	if m == nil {
		return c, fmt.Errorf("cell %q: want X or X / Y first", text)
	}
	c.want = either(m[1], m[2])
	if !differs {
		return c, nil
	}
	for part := range strings.SplitSeq(rest, "; ") {
		m := refForm.FindStringSubmatch(part)
		if m == nil {
			return c, fmt.Errorf("cell %q: want ref X [N], not %q", text, part)
		}
		r := matrixRef{who: m[1], want: either(m[2], m[3]), note: m[4]}
		if r.want == c.want {
			return c, fmt.Errorf("cell %q: the reference does not differ", text)
		}
		c.refs = append(c.refs, r)
	}
	return c, nil
}

// either gives both families the one value, if there is but one.
func either(v4, v6 string) [2]string {
	if v6 == "" {
		v6 = v4
	}
	return [2]string{v4, v6}
}

// parseMatrix reads the table under a heading.
func parseMatrix(page, heading string) (m matrix, err error) {
	_, section, ok := strings.Cut(page, "\n## "+heading+"\n")
	if !ok {
		return m, fmt.Errorf("no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") {
			continue
		}
		texts := strings.Split(strings.Trim(line, "|"), "|")
		for i := range texts {
			texts[i] = strings.Trim(strings.TrimSpace(texts[i]), "`")
		}
		if m.called == nil {
			m.called = texts[1:]
			continue
		}
		if len(texts) != len(m.called)+1 {
			return m, fmt.Errorf("row %q: want %d cells", line, len(m.called)+1)
		}
		row := matrixRow{caller: texts[0]}
		for _, text := range texts[1:] {
			c, err := parseCell(text)
			if err != nil {
				return m, fmt.Errorf("row %q: %w", row.caller, err)
			}
			row.cells = append(row.cells, c)
		}
		m.rows = append(m.rows, row)
	}
	if len(m.rows) == 0 {
		return m, fmt.Errorf("no table under %q", heading)
	}
	return m, nil
}

// matrixPage is the document that the matrix is.
func matrixPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func readMatrix(t *testing.T, heading string) matrix {
	t.Helper()
	m, err := parseMatrix(matrixPage(t), heading)
	if err != nil {
		t.Fatalf("docs/matrix.md: %v", err)
	}
	return m
}

const (
	callingAPod  = "Calling a pod"
	aPodCalling  = "A pod calling"
	whyDifferent = "Where the reference differs"
)

// Every difference of the reference has a reason, and every reason a difference.
func TestMatrixReasons(t *testing.T) {
	_, list, ok := strings.Cut(matrixPage(t), "\n## "+whyDifferent+"\n")
	if !ok {
		t.Fatalf("docs/matrix.md: no heading %q", whyDifferent)
	}
	used := map[string]bool{}
	for _, heading := range []string{callingAPod, aPodCalling} {
		for _, row := range readMatrix(t, heading).rows {
			for _, c := range row.cells {
				for _, r := range c.refs {
					used[r.note] = true
				}
			}
		}
	}
	for line := range strings.Lines(list) {
		if m := noteForm.FindStringSubmatch(line); m != nil {
			if !used[m[1]] {
				t.Errorf("docs/matrix.md: no cell has reason %s", m[1])
			}
			delete(used, m[1])
		}
	}
	for note := range used {
		t.Errorf("docs/matrix.md: there is no reason %s", note)
	}
}

func TestMatrixCell(t *testing.T) {
	for text, want := range map[string][4]string{ // culvert's by IPv4 and IPv6, iptables' by both
		"caller":                                {"caller", "caller", "caller", "caller"},
		"1.2.3.4 / fe80::1":                     {"1.2.3.4", "fe80::1", "1.2.3.4", "fe80::1"},
		"caller; ref bridge [2]":                {"caller", "caller", "bridge", "bridge"},
		"up0 / up1; ref a / silent [1]":         {"up0", "up1", "a", "silent"},
		"a; ref-nftables b [1]":                 {"a", "a", "a", "a"},
		"a; ref-nftables b [1]; ref c / d [12]": {"a", "a", "c", "d"},
	} {
		c, err := parseCell(text)
		got := [4]string{c.of("", 4), c.of("", 6), c.of("iptables", 4), c.of("iptables", 6)}
		if err != nil || got != want {
			t.Errorf("parse %q: want %v, got %v (%v)", text, want, got, err)
		}
	}
	for _, text := range []string{"", "a; ref b", "a; ref a [1]", "a / b / c", "a [1]", "a; ref b [x]", "a; bridge b [1]"} {
		if c, err := parseCell(text); err == nil {
			t.Errorf("parse %q: want an error, got %v", text, c)
		}
	}
}
