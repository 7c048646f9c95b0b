// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name       string
		challenger []float64
		now        []float64
		want       verdict
	}{
		{"less by more than the spread", []float64{1, 1.5, 1}, []float64{3, 3.5, 3}, better},
		{"less, but only by the spread", []float64{1, 2, 1}, []float64{2, 3, 2}, neither},
		{"the spread of what is there counts too", []float64{1, 1, 1}, []float64{2, 5, 2}, neither},
		{"one round the other way", []float64{1, 9, 1}, []float64{20, 8, 20}, neither},
		{"one round equal", []float64{1, 1, 1}, []float64{3, 3, 1}, neither},
		{"more by more than the spread", []float64{3, 3, 3.5}, []float64{1, 1, 1}, worse},
		{"all equal", []float64{2, 2}, []float64{2, 2}, neither},
		{"a round without a figure", []float64{1, nan, 1}, []float64{3, 3, 3}, neither},
		{"nor there", []float64{1, 1, 1}, []float64{3, nan, 3}, neither},
		{"rounds are missing", []float64{1}, []float64{3, 3}, neither},
		{"no rounds", nil, nil, neither},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := judge(tt.challenger, tt.now); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReplaces(t *testing.T) {
	a, b := cell{rate: 10e6, flows: 1}, cell{rate: 10e6, flows: 10}
	good := measurement{share: 1, ping50: 1, ping99: 1, request50: 1, request99: 1, cpu: 1}
	bad := measurement{share: 1, ping50: 9, ping99: 9, request50: 9, request99: 9, cpu: 9}
	costly := good
	costly.cpu = 9
	fill := func(challenger measurement) results {
		r := results{}
		for range 7 {
			r.add(a, today, bad)
			r.add(b, today, bad)
			r.add(a, "edt", good)
			r.add(b, "edt", challenger)
		}
		return r
	}
	cells := []cell{a, b}
	if r := fill(good); !r.replaces(cells, "edt") {
		t.Error("better everywhere, and it does not replace what is there")
	}
	if r := fill(costly); r.replaces(cells, "edt") {
		t.Error("not better in one metric of one cell, and it replaces what is there")
	}
	if r := fill(good); r.replaces(nil, "edt") {
		t.Error("without a cell nothing is shown")
	}
}

func TestQuantile(t *testing.T) {
	f := small{sent: 4, rtts: []time.Duration{1e6, 2e6, 3e6}}
	if f.quantile(.5) != 2 || f.quantile(.99) != 3 || f.loss() != 25 {
		t.Errorf("p50 %v, p99 %v, lost %v", f.quantile(.5), f.quantile(.99), f.loss())
	}
	if none := (small{sent: 1}); !math.IsNaN(none.quantile(.5)) || none.loss() != 100 {
		t.Errorf("no answer: p50 %v, lost %v", none.quantile(.5), none.loss())
	}
}

func TestIdleTime(t *testing.T) {
	got, err := idleTime([]byte("cpu: 0\n  .idle_sleeptime : 5000 nsecs\n  .iowait_sleeptime: 20 nsecs\ncpu: 1\n" +
		"  .idle_jiffies   : 9\n  .idle_sleeptime : 300 nsecs\n  .iowait_sleeptime: 1 nsecs\n"))
	if err != nil || got != 5321 {
		t.Errorf("idle for %d ns, %v", got, err)
	}
	if _, err := idleTime([]byte("cpu: 0\n")); err == nil {
		t.Error("nothing was idle, and that is no error")
	}
}

// The shapers compared are those that culvert set then (podnet's TestShaper has today's).
func TestTBF(t *testing.T) {
	for _, tt := range []struct{ rate, burst, queue uint64 }{
		{1e6, 3028, 12112}, {10e6, 5000, 12500}, {100e6, 68 << 10, 125000},
	} {
		if burst, queue := tbf(tt.rate); burst != tt.burst || queue != tt.queue {
			t.Errorf("%d bit/s: burst %d and queue %d, want %d and %d", tt.rate, burst, queue, tt.burst, tt.queue)
		}
	}
	for _, tt := range []struct{ rate, target, interval, memory uint64 }{
		{1e6, 15140, 100000, 113984}, {10e6, 5000, 100000, 250000}, {100e6, 5000, 100000, 2500000},
	} {
		if target, interval, memory := fqCodel(tt.rate); target != tt.target || interval != tt.interval || memory != tt.memory {
			t.Errorf("%d bit/s: target %d, interval %d and memory %d, want %+v", tt.rate, target, interval, memory, tt)
		}
	}
}

func TestCells(t *testing.T) {
	o := options{directions: "to-pod,from-pod", rates: "10,100", flows: "1,10", gso: "on,off", only: "."}
	all, err := o.cells()
	if err != nil || len(all) != 16 {
		t.Fatalf("%d cells, %v", len(all), err)
	}
	if got := all[0].String(); !strings.HasPrefix(got, "to-pod 10M 1") {
		t.Errorf("the first is %q", got)
	}
	o.only = "10M|GSO"
	if some, err := o.cells(); err != nil || len(some) != 12 {
		t.Errorf("%d cells without packets at 100 Mbit/s, %v", len(some), err)
	}
	for _, o := range []options{
		{directions: "up", rates: "10", flows: "1", gso: "on"}, {directions: "to-pod", rates: "0", flows: "1", gso: "on"},
		{directions: "to-pod", rates: "10", flows: "0", gso: "on"}, {directions: "to-pod", rates: "10", flows: "1", gso: ""},
		{directions: "to-pod", rates: "10", flows: "1", gso: "on", only: "("},
	} {
		if _, err := o.cells(); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
