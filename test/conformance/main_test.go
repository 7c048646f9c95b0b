// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// Of all tables.
var rows, passed atomic.Int32

func TestMain(m *testing.M) {
	code := m.Run()
	if n := rows.Load(); n > 0 {
		fmt.Fprintf(os.Stdout, "conformance: %d rows, %d passed\n", n, passed.Load())
	}
	os.Exit(code)
}

// try runs one row of a table and counts it.
func try(t *testing.T, name string, row func(t *testing.T)) {
	rows.Add(1)
	if t.Run(name, row) {
		passed.Add(1)
	}
}
