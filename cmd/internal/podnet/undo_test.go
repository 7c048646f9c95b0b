// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestUndoStack(t *testing.T) {
	var done []string
	var s undoStack
	note := func(name string, err error) {
		s.push(name, func() error { done = append(done, name); return err })
	}
	note("veth", nil)
	note("row", errors.New("no map"))
	note("route", nil)
	err := s.run()
	if want := []string{"route", "row", "veth"}; !slices.Equal(done, want) {
		t.Errorf("undone in the order %v, want %v", done, want)
	}
	if err == nil || !strings.Contains(err.Error(), "undo row: no map") {
		t.Errorf("got error %v, want one that names the row", err)
	}
	if done = nil; s.run() != nil || done != nil {
		t.Errorf("a second run undid %v", done)
	}
	for _, fails := range []error{nil, errors.New("no map")} {
		done = nil
		note("veth", nil)
		s.pushWitness("iface", func() error { done = append(done, "iface"); return nil })
		note("row", fails)
		if err := s.run(); (err == nil) != (fails == nil) || slices.Contains(done, "iface") != (fails == nil) {
			t.Errorf("undone %v, error %v, where a later step gave %v", done, err, fails)
		}
	}
	done = nil
	note("veth", nil)
	s.commit()
	if s.run() != nil || done != nil {
		t.Errorf("after commit %v was undone", done)
	}
}
