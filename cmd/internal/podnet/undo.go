// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
)

// undoStack holds, for each thing done, how to undo it.
type undoStack struct{ steps []undoStep }

type undoStep struct {
	what string
	undo func() error
}

// push adds a step. It has to be idempotent, and may be pushed before the thing is done.
func (s *undoStack) push(what string, undo func() error) {
	s.steps = append(s.steps, undoStep{what, undo})
}

// run undoes everything, the last thing first, and goes on after an error.
func (s *undoStack) run() error {
	var errs []error
	for len(s.steps) > 0 {
		last := s.steps[len(s.steps)-1]
		s.steps = s.steps[:len(s.steps)-1]
		if err := last.undo(); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", last.what, err))
		}
	}
	return errors.Join(errs...)
}

// commit keeps everything.
func (s *undoStack) commit() { s.steps = nil }
