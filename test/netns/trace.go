// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Traced is a packet as `culvertctl trace -o json` prints it.
type Traced struct {
	Time                           time.Time
	Hook, Verdict, Reason          string
	Device, Pod, OutDevice, OutPod string
	Proto, Src, Dst, ToSrc, ToDst  string
	TCPFlags, Fragment, Ethertype  string
	ICMPType                       *uint8
	Length                         int
}

// Tracer is a `culvertctl trace` that runs.
type Tracer struct {
	cmd     *exec.Cmd
	once    sync.Once
	reading sync.WaitGroup

	mu   sync.Mutex
	rows []Traced        // that nobody has asked for
	said strings.Builder // on stderr
	err  error           // of what it printed
}

// Trace starts the program, by start, which knows in what namespace, and waits until it follows.
// It ends with the test.
func Trace(tb testing.TB, start func(*exec.Cmd) error, program string, args ...string) *Tracer {
	tb.Helper()
	t := &Tracer{cmd: exec.Command(program, append([]string{"trace", "-o", "json"}, args...)...)}
	stdout, err := t.cmd.StdoutPipe()
	stderr, err2 := t.cmd.StderrPipe()
	if err := errors.Join(err, err2, start(t.cmd)); err != nil {
		tb.Fatalf("start %v: %v", t.cmd, err)
	}
	t.reading.Go(func() { t.listen(stderr) })
	t.reading.Go(func() { t.read(stdout) })
	tb.Cleanup(func() { t.Stop(tb) })
	if err := t.poll(func() error {
		if said := t.Said(); !strings.HasPrefix(said, "following") {
			return fmt.Errorf("%v does not follow: %q", t.cmd, said)
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	return t
}

func (t *Tracer) listen(stderr io.Reader) {
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		t.mu.Lock()
		t.said.WriteString(lines.Text() + "\n")
		t.mu.Unlock()
	}
}

func (t *Tracer) read(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var row Traced
		err := json.Unmarshal(lines.Bytes(), &row)
		t.mu.Lock()
		if err != nil {
			t.err = fmt.Errorf("trace printed %q: %w", lines.Text(), err)
		} else {
			t.rows = append(t.rows, row)
		}
		t.mu.Unlock()
	}
}

// poll is Poll, as often as an emulated machine wants.
func (t *Tracer) poll(f func() error) (err error) {
	for range map[bool]int{false: 1, true: 6}[Emulated()] {
		if err = Poll(f); err == nil {
			return nil
		}
	}
	return err
}

// Next is the next packet that it tells of.
func (t *Tracer) Next(tb testing.TB) Traced {
	tb.Helper()
	return t.Find(tb, func(Traced) bool { return true })
}

// Find passes over packets until one is wanted.
func (t *Tracer) Find(tb testing.TB, wanted func(Traced) bool) Traced {
	tb.Helper()
	var passed []Traced
	var found Traced
	err := t.poll(func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		for i, row := range t.rows {
			if wanted(row) {
				found, t.rows = row, t.rows[i+1:]
				return nil
			}
		}
		passed, t.rows = append(passed, t.rows...), nil
		return fmt.Errorf("trace: no such packet, but %+v; it said %q", passed, t.said.String())
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// Rest stops the program and gives the packets that nobody has asked for.
func (t *Tracer) Rest(tb testing.TB) []Traced {
	tb.Helper()
	t.Stop(tb)
	return t.rows
}

// Said is what the program said on stderr so far.
func (t *Tracer) Said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said.String()
}

// Kill ends the program without a word of its own.
func (t *Tracer) Kill() { _ = t.end(unix.SIGKILL) }

// Stop ends the program as Ctrl-C does, if it runs.
func (t *Tracer) Stop(tb testing.TB) {
	tb.Helper()
	if err := t.end(unix.SIGINT); err != nil {
		tb.Errorf("%v: %v: %s", t.cmd, err, t.Said())
	}
}

func (t *Tracer) end(by unix.Signal) (err error) {
	t.once.Do(func() {
		_ = t.cmd.Process.Signal(by) // it may have ended
		t.reading.Wait()
		err = errors.Join(t.cmd.Wait(), t.err)
	})
	return err
}
