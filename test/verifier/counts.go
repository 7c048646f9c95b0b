// SPDX-License-Identifier: Apache-2.0

// Package verifier keeps how many instructions the verifier of each kernel goes through for
// each program (bpf_prog_info.verified_insns), in counts.txt. Its test loads the object as
// culvert does and fails where a program has grown. update.sh writes the file anew.
package verifier

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Most is half of what a verifier goes through before it gives up (1,000,000,
// BPF_COMPLEXITY_LIMIT_INSNS): kernels not tried yet may count twice as many.
const Most = 500_000

// 20 of 100 is the part by which a program must not have grown.
const grownBy, grownOf = 20, 100

// Counts are instructions by kernel ("6.12") and program.
type Counts map[string]map[string]int

// kernelOf makes the kernel's name in the file from a release: major.minor.
func kernelOf(release string) (string, error) {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("read kernel release %q: %w", release, err)
	}
	return fmt.Sprintf("%d.%d", major, minor), nil
}

// older orders kernels as slices.Sort wants it: negative if a is older than b.
func older(a, b string) int {
	var x, y [2]int
	_, _ = fmt.Sscanf(a, "%d.%d", &x[0], &x[1])
	_, _ = fmt.Sscanf(b, "%d.%d", &y[0], &y[1])
	return slices.Compare(x[:], y[:])
}

// standIn is the column that a kernel without its own is held against: the newest older one
// of the same major version, since a prefix such as 7 takes what the mirror has by now.
func (c Counts) standIn(kernel string) string {
	major, _, _ := strings.Cut(kernel, ".")
	var best string
	for k := range c {
		if m, _, _ := strings.Cut(k, "."); m == major && older(k, kernel) <= 0 && (best == "" || older(best, k) < 0) {
			best = k
		}
	}
	return best
}

// parse reads the file: comments, a line of kernels, a line a program.
func parse(r io.Reader) (Counts, error) {
	c := Counts{}
	var kernels []string
	for in := bufio.NewScanner(r); in.Scan(); {
		words := strings.Fields(in.Text())
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case kernels == nil:
			kernels = words[1:]
			for _, k := range kernels {
				c[k] = map[string]int{}
			}
		case len(words) != 1+len(kernels):
			return nil, fmt.Errorf("read counts: %q has not %d columns", in.Text(), 1+len(kernels))
		default:
			for i, word := range words[1:] {
				n, err := strconv.Atoi(word)
				if word == none {
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("read counts: %w", err)
				}
				c[kernels[i]][words[0]] = n
			}
		}
	}
	return c, nil
}

// none stands where a program has not been counted.
const none = "-"

const head = `# Instructions that the verifier of each kernel goes through for each program (verified_insns).
# A program that takes 20 % more fails the test; test/verifier/update.sh writes this file anew.
`

// print writes what parse reads.
func (c Counts) print(w io.Writer) error {
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	kernels := slices.SortedFunc(maps.Keys(c), older)
	programs := map[string]bool{}
	for _, of := range c {
		for p := range of {
			programs[p] = true
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "program\t%s\t\n", strings.Join(kernels, "\t"))
	for _, p := range slices.Sorted(maps.Keys(programs)) {
		fmt.Fprintf(table, "%s\t", p)
		for _, k := range kernels {
			if n, ok := c[k][p]; ok {
				fmt.Fprintf(table, "%d\t", n)
			} else {
				fmt.Fprintf(table, "%s\t", none)
			}
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// compare says, a sentence each, what is wrong with the counts of now beside the written ones.
func compare(kernel, column string, was, now map[string]int) (wrong []string) {
	for _, p := range slices.Sorted(maps.Keys(now)) {
		old, ok := was[p]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s: not counted on %s yet, %d now: run test/verifier/update.sh", p, column, now[p]))
		case now[p]*grownOf >= old*(grownOf+grownBy):
			wrong = append(wrong, fmt.Sprintf("%s: the verifier of %s goes through %d instructions, %d as written for %s: %d %% more",
				p, kernel, now[p], old, column, (now[p]-old)*100/max(old, 1)))
		}
		if now[p] > Most {
			wrong = append(wrong, fmt.Sprintf("%s: the verifier of %s goes through %d instructions, want %d at most", p, kernel, now[p], Most))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(was)) {
		if _, ok := now[p]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s: counted on %s, but not loaded any more: run test/verifier/update.sh", p, column))
		}
	}
	return wrong
}
