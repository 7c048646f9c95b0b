// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

const pingSize, requestSize = 64, 1000

// measure has one candidate hold one cell's rate.
func (s *stage) measure(c cell, k candidate, o options) (m measurement, err error) {
	from, to, dst, at, dev := s.ends(c.fromPod)
	if err := s.sizes(c); err != nil {
		return m, err
	}
	var i *net.Interface
	if err := at.Do(func() (err error) { i, err = net.InterfaceByName(dev); return err }); err != nil {
		return m, err
	}
	undo, err := k.set(at, dev, i.Index, c)
	if err != nil {
		return m, fmt.Errorf("set shaper: %w", err)
	}
	defer undo()
	bulk, err := netns.Stream{Proto: "tcp", From: from, To: to, Dst: dst, Flows: c.flows}.Start()
	if err != nil {
		return m, fmt.Errorf("start bulk: %w", err)
	}
	defer bulk.Stop()
	time.Sleep(o.warmup)
	busy, err := used()
	if err != nil {
		return m, err
	}
	before, start := bulk.Total(), time.Now()
	var ping, request small
	var g errgroup.Group
	g.Go(func() (err error) { ping, err = ask(from, dst, pingSize, o.window); return err })
	g.Go(func() (err error) { request, err = ask(from, dst, requestSize, o.window); return err })
	time.Sleep(o.window)
	moved, took := 8*float64(bulk.Total()-before), time.Since(start)
	spent, err := used()
	if err := errors.Join(err, g.Wait()); err != nil {
		return m, err
	}
	return measurement{
		share:      (moved + ping.wire(pingSize) + request.wire(requestSize)) / took.Seconds() / float64(c.rate),
		ping50:     ping.quantile(.5),
		ping99:     ping.quantile(.99),
		pingLost:   ping.loss(),
		request50:  request.quantile(.5),
		request99:  request.quantile(.99),
		requestLos: request.loss(),
		cpu:        (spent - busy).Seconds() / (moved / 8e9),
	}, nil
}

// used is the processors' time that was not idle, since some moment. /proc/stat would
// have it in hundredths of a second, too coarse for what 10 Mbit/s cost.
func used() (time.Duration, error) {
	b, err := os.ReadFile("/proc/timer_list")
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, err
	}
	idle, err := idleTime(b)
	return time.Duration(now.Nano()*int64(runtime.NumCPU())) - idle, err
}

// idleTime adds up what /proc/timer_list says of each processor.
func idleTime(timers []byte) (sum time.Duration, err error) {
	seen := 0
	for line := range bytes.Lines(timers) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch string(bytes.TrimSpace(name)) {
		case ".idle_sleeptime", ".iowait_sleeptime":
			ns, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" nsecs"))), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read /proc/timer_list: %w", err)
			}
			sum += time.Duration(ns)
			seen++
		}
	}
	if seen == 0 {
		return 0, errors.New("read /proc/timer_list: it has no idle times")
	}
	return sum, nil
}

// dropped: a shaper on the sender's own device says so to the sender.
func dropped(err error) bool { return errors.Is(err, unix.ENOBUFS) }
