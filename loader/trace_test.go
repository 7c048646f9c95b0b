// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
)

// O2: one process follows packets, and a second one learns which; a pin that is deleted ends
// nothing for good, for the next Ensure finds the table again.
func TestPrivilegedO2TraceOfOne(t *testing.T) {
	opts := options(t)
	d := ensure(t, opts)
	trace, err := d.Trace()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Trace(); !errors.Is(err, ErrTraced) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a second one: %v", err)
	}
	if !trace.Stands() {
		t.Error("it does not stand")
	}
	if err := os.Remove(filepath.Join(d.dirs.maps, bpf.DatapathMapEvents)); err != nil {
		t.Fatal(err)
	}
	if trace.Stands() {
		t.Error("it stands without its pin")
	}
	ensure(t, opts)
	if !trace.Stands() {
		t.Error("the table was not found again")
	}
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
	next, err := d.Trace()
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
	for _, name := range traceTables {
		if err := os.Remove(filepath.Join(d.dirs.maps, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Trace(); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("of a build without the tables: %v", err)
	}
}
