// SPDX-License-Identifier: Apache-2.0

package verifier

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/test/netns"
)

const file = "counts.txt"

var update = flag.Bool("update", false, "write this kernel's column of "+file+" anew")

// kernels are those of make test-kernels, which must have a column; 7 is whatever 7.x the
// mirror has.
var kernels = []string{"6.1", "6.12", "6.18", "7"}

// listed says whether a column must be there.
func listed(kernel string) bool {
	major, _, _ := strings.Cut(kernel, ".")
	return slices.Contains(kernels, kernel) || slices.Contains(kernels, major)
}

func read(t *testing.T) Counts {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, c Counts) {
	t.Helper()
	var text bytes.Buffer
	if err := c.print(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// count loads the object as culvert does and asks the kernel.
func count(t *testing.T) map[string]int {
	t.Helper()
	pins := filepath.Join(netns.PinPath(t), "culvert")
	d, err := loader.Ensure(loader.Options{PinPath: pins, Netlink: &loader.FakeNetlink{}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	found, err := filepath.Glob(filepath.Join(pins, "v*", "progs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]int{}
	for _, pin := range found {
		prog, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer prog.Close()
		info, err := prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		if !ok || n == 0 {
			t.Fatalf("%s: the kernel does not tell", pin)
		}
		now[filepath.Base(pin)] = int(n)
	}
	return now
}

// programs are those of the object.
func programs(t *testing.T) []string {
	t.Helper()
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(spec.Programs))
}

// No program has grown by 20 % on this kernel since its column was written.
func TestPrivilegedCounts(t *testing.T) {
	release := netns.Kernel()
	kernel, err := kernelOf(release)
	if err != nil {
		t.Fatal(err)
	}
	now := count(t)
	if got := slices.Sorted(maps.Keys(now)); !slices.Equal(got, programs(t)) {
		t.Errorf("programs: loaded %v, the object has %v", got, programs(t))
	}
	written := read(t)
	if *update {
		written[kernel] = now
		write(t, written)
	}
	column := kernel
	if written[kernel] == nil && listed(kernel) {
		column = written.standIn(kernel)
		t.Logf("%s has no column for kernel %s: held against that of %q", file, kernel, column)
	}
	switch {
	case written[column] != nil:
	case listed(kernel) && os.Getenv("CULVERT_TEST_KERNELS") != "":
		t.Fatalf("%s has no column for kernel %s: write it by test/verifier/update.sh", file, release)
	default:
		t.Skipf("%s has no column for kernel %s: nothing to hold %v against", file, release, now)
	}
	for _, wrong := range compare(release, column, written[column], now) {
		t.Error(wrong)
	}
	t.Logf("kernel %s: %v", release, now)
}

// The file has the programs of the object and the kernels of make test-kernels, and none of
// the counts comes near what a verifier refuses.
func TestFile(t *testing.T) {
	written := read(t)
	for _, kernel := range kernels {
		if written[kernel] == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(written)), func(k string) bool {
			return strings.HasPrefix(k, kernel+".")
		}) {
			t.Errorf("no column for %s", kernel)
		}
	}
	for kernel, of := range written {
		if got := slices.Sorted(maps.Keys(of)); !slices.Equal(got, programs(t)) {
			t.Errorf("%s: programs %v, the object has %v", kernel, got, programs(t))
		}
		for p, n := range of {
			if n > Most {
				t.Errorf("%s: the verifier of %s goes through %d instructions, want %d at most", p, kernel, n, Most)
			}
		}
	}
	var text bytes.Buffer
	if err := written.print(&text); err != nil {
		t.Fatal(err)
	}
	again, err := parse(&text)
	if err != nil || !reflect.DeepEqual(again, written) {
		t.Errorf("written and read again: %v, %v", again, err)
	}
}

func TestCompare(t *testing.T) {
	was := map[string]int{"a": 1000}
	for _, c := range []struct {
		name string
		now  map[string]int
		want []string // words of the sentences
	}{
		{"same", map[string]int{"a": 1000}, nil},
		{"smaller", map[string]int{"a": 10}, nil},
		{"19.9 % more", map[string]int{"a": 1199}, nil},
		{"20 % more", map[string]int{"a": 1200}, []string{"a:", "7.3.4", "1200", "1000"}},
		{"new", map[string]int{"a": 1000, "b": 1}, []string{"b:", "not counted"}},
		{"gone", map[string]int{}, []string{"a:", "not loaded any more"}},
		{"too many", map[string]int{"a": Most + 1}, []string{"a:", "at most"}},
	} {
		got := strings.Join(compare("7.3.4", "7.3", was, c.now), "\n")
		if c.want == nil && got != "" {
			t.Errorf("%s: %s", c.name, got)
		}
		for _, word := range c.want {
			if !strings.Contains(got, word) {
				t.Errorf("%s: no %q in %q", c.name, word, got)
			}
		}
	}
}

func TestStandIn(t *testing.T) {
	c := Counts{"6.1": {}, "6.12": {}, "6.18": {}, "7.3": {}, "7.10": {}}
	for kernel, want := range map[string]string{
		"7.3": "7.3", "7.4": "7.3", "7.12": "7.10", "7.2": "", "6.6": "6.1", "6.20": "6.18", "5.10": "", "8.0": "",
	} {
		if got := c.standIn(kernel); got != want {
			t.Errorf("%s: %q, want %q", kernel, got, want)
		}
	}
	for kernel, want := range map[string]bool{"6.1": true, "6.18": true, "7.3": true, "7.12": true, "6.6": false, "5.10": false, "8.0": false} {
		if listed(kernel) != want {
			t.Errorf("%s: listed %v", kernel, !want)
		}
	}
	for release, want := range map[string]string{"6.1.0-57-cloud-amd64": "6.1", "7.3.4+deb13-cloud-amd64": "7.3", "6.18.44": "6.18"} {
		if got, err := kernelOf(release); err != nil || got != want {
			t.Errorf("%s: %q, %v", release, got, err)
		}
	}
}
