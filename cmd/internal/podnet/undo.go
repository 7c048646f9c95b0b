// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// undoStack holds, for each thing done, how to undo it.
type undoStack struct{ steps []undoStep }

type undoStep struct {
	what    string
	undo    func() error
	witness bool
}

// undoTime is what undoing may wait for others, after whoever asked for the thing has
// lost patience.
const undoTime = 10 * time.Second

// undoContext goes on when ctx has ended, for a while.
func undoContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTime)
}

// push adds a step. It has to be idempotent, and may be pushed before the thing is done.
func (s *undoStack) push(what string, undo func() error) {
	s.steps = append(s.steps, undoStep{what, undo, false})
}

// pushWitness is push for what DEL and GC find the rest by: it stays if something could
// not be undone that was done after it.
func (s *undoStack) pushWitness(what string, undo func() error) {
	s.steps = append(s.steps, undoStep{what, undo, true})
}

// run undoes everything, the last thing first, and goes on after an error.
func (s *undoStack) run() error {
	var errs []error
	for len(s.steps) > 0 {
		last := s.steps[len(s.steps)-1]
		s.steps = s.steps[:len(s.steps)-1]
		if last.witness && len(errs) > 0 {
			continue
		}
		if err := last.undo(); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", last.what, err))
		}
	}
	return errors.Join(errs...)
}

// commit keeps everything.
func (s *undoStack) commit() { s.steps = nil }
