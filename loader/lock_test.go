// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// A holder that does not let go is named, and waited for once.
func TestLockWait(t *testing.T) {
	dir := t.TempDir()
	p := &patience{wait: 100 * time.Millisecond}
	unlock, err := p.lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.lock(dir)
	me := fmt.Sprintf("process %d (", os.Getpid())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), me) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a held lock: %v", err)
	}
	p.wait = time.Hour
	if _, err := p.lock(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a held lock, once more: %v", err)
	}
	unlock()
	// Who waited in vain takes the lock when it comes, and gives it back.
	other := &patience{wait: 10 * time.Second}
	unlock, err = other.lock(dir)
	if err != nil {
		t.Fatalf("a free lock: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	unlock, err = other.lock(dir)
	if err != nil {
		t.Fatalf("a lock let go while waiting: %v", err)
	}
	unlock()
}

// Who is told to stop waits no longer, and for no other lock, but who knew it before waits as
// anybody: it undoes what it did.
func TestLockStop(t *testing.T) {
	dir := t.TempDir()
	holder := &patience{wait: time.Hour}
	unlock, err := holder.lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	p, known := &patience{wait: time.Hour, stop: stop}, &patience{wait: time.Hour, stop: stop}
	time.AfterFunc(50*time.Millisecond, func() { close(stop) })
	for range 2 {
		if _, err := p.lock(dir); !errors.Is(err, ErrLocked) {
			t.Errorf("told to stop: %v", err)
		}
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	unlock, err = known.lock(dir)
	if err != nil {
		t.Fatalf("what is undone: %v", err)
	}
	unlock()
}

// A holder that works is waited for longer than one that does nothing.
func TestLockWaitForWork(t *testing.T) {
	dir := t.TempDir()
	p := &patience{wait: time.Second / 2, longest: time.Minute}
	letGo, err := p.lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for start := time.Now(); time.Since(start) < 2*time.Second; {
		}
		letGo()
	}()
	unlock, err := p.lock(dir)
	if err != nil {
		t.Fatalf("a holder that works: %v", err)
	}
	unlock()
}

func TestFindHolder(t *testing.T) {
	locks := "1: POSIX  ADVISORY  WRITE 7 00:1f:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 00:1f:6 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 9 00:1f:6 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 10 00:1f:5 0 EOF\n"
	for file, want := range map[string]int{"00:1f:5": 10, "00:1f:6": 8, "00:1f:7": 0} {
		if got := findHolder(strings.NewReader(locks), file); got != want {
			t.Errorf("%s: got %d, want %d", file, got, want)
		}
	}
}
