// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"
)

// tally is what became of one kind of request to one target since the last reset.
type tally struct {
	Target string `json:"target"`
	Kind   string `json:"kind"`
	Sent   int    `json:"sent"`
	Lost   int    `json:"lost"`
	// Broken counts the connections that ended; only of kept ones.
	Broken int `json:"broken"`
	// WorstMS is the longest time without an answer, in milliseconds.
	WorstMS int64 `json:"worst_ms"`
	// StallMS is the time, in milliseconds, that this program itself did not get to run in; no request ages in it.
	StallMS int64 `json:"stall_ms"`

	mu       sync.Mutex
	pulse    *pulse
	stalled  time.Duration
	answered time.Time
	waiting  map[uint64]time.Time
}

// pulse knows when this program did not get to run: on a busy machine that may be seconds, in which nobody else's
// answer can be judged.
type pulse struct {
	mu    sync.Mutex
	last  time.Time
	total time.Duration
}

func newPulse() *pulse {
	p := &pulse{last: time.Now()}
	go func() {
		for range time.Tick(stall / 5) {
			p.stalled()
		}
	}()
	return p
}

// stalled is the sum of all such times.
func (p *pulse) stalled() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if away := time.Since(p.last); away > stall {
		p.total += away
	}
	p.last = time.Now()
	return p.total
}

func newTally(p *pulse, target, kind string) *tally {
	t := &tally{Target: target, Kind: kind, pulse: p, waiting: map[uint64]time.Time{}}
	t.reset()
	return t
}

// lock is for whoever looks at times: those in which the program stood still are taken off first.
func (t *tally) lock() {
	t.mu.Lock()
	total := t.pulse.stalled()
	away := total - t.stalled
	if away == 0 {
		return
	}
	t.stalled = total
	t.StallMS += away.Milliseconds()
	t.answered = t.answered.Add(away)
	for id, at := range t.waiting {
		t.waiting[id] = at.Add(away)
	}
}

func (t *tally) reset() {
	t.lock()
	defer t.mu.Unlock()
	t.Sent, t.Lost, t.Broken, t.WorstMS, t.StallMS = 0, 0, 0, 0, 0
	t.answered = time.Now()
	clear(t.waiting)
}

func (t *tally) send(id uint64) {
	t.lock()
	defer t.mu.Unlock()
	t.Sent++
	t.waiting[id] = time.Now()
}

// answer takes a request off the list; an answer to one that was given up or sent before a reset is nothing.
func (t *tally) answer(id uint64) {
	t.lock()
	defer t.mu.Unlock()
	if _, ok := t.waiting[id]; !ok {
		return
	}
	delete(t.waiting, id)
	t.gap()
	t.answered = time.Now()
}

// gap notes how long nothing was answered.
func (t *tally) gap() { t.WorstMS = max(t.WorstMS, time.Since(t.answered).Milliseconds()) }

// lose counts requests that are older than age as lost.
func (t *tally) lose(age time.Duration) {
	t.lock()
	defer t.mu.Unlock()
	for id, at := range t.waiting {
		if time.Since(at) >= age {
			delete(t.waiting, id)
			t.Lost++
		}
	}
}

func (t *tally) broke() {
	t.lose(0)
	t.lock()
	defer t.mu.Unlock()
	t.Broken++
}

// state is a copy for the one who asks; what waits for too long counts as lost in it.
func (t *tally) state() *tally {
	t.lock()
	defer t.mu.Unlock()
	t.gap()
	c := &tally{Target: t.Target, Kind: t.Kind, Sent: t.Sent, Lost: t.Lost, Broken: t.Broken, WorstMS: t.WorstMS, StallMS: t.StallMS}
	for _, at := range t.waiting {
		if time.Since(at) >= lostAfter {
			c.Lost++
		}
	}
	return c
}
