// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Progress tells a person what is going on: on a terminal in one line that is written over,
// elsewhere in a line every ten seconds.
type Progress struct {
	out      io.Writer
	terminal bool
	start    time.Time

	mu    sync.Mutex
	part  string
	since time.Time // when the part began to count
	last  time.Time
}

// NewProgress writes to out.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, start: time.Now()}
	if f, ok := out.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

// Step tells that of a part's `total` steps `done` are done and what comes now. Before
// anything is counted total is 0.
func (p *Progress) Step(part string, done, total int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	first := part != p.part
	if first {
		p.part, p.since = part, time.Time{}
	}
	if total > 0 && p.since.IsZero() {
		p.since = now
	}
	if !p.terminal && !first && now.Sub(p.last) < 10*time.Second {
		return
	}
	p.last = now
	line := fmt.Sprintf("%s %s: %s", clock(now.Sub(p.start)), part, what)
	if total > 0 {
		line = fmt.Sprintf("%s %s %d %%: %s", clock(now.Sub(p.start)), part, 100*done/total, what)
		if done > 0 {
			line += fmt.Sprintf(" (%s left)", clock(now.Sub(p.since)*time.Duration(total-done)/time.Duration(done)))
		}
	}
	if p.terminal {
		fmt.Fprintf(p.out, "\r%.*s\x1b[K", 110, line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// Done clears the line.
func (p *Progress) Done() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
