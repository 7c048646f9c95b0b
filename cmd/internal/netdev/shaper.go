// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// Shaper is a token bucket filter at the root of a device: it holds what the device
// sends to Rate.
type Shaper struct {
	Rate  uint64 // byte/s; 0: none
	Burst uint64 // bytes that may go at once
	Queue uint64 // bytes that may wait where all flows share one queue
	// Flows gives each flow a queue of its own, so that a ping does not wait behind a
	// download; nil: all share one.
	Flows *FlowQueues
}

// FlowQueues are the parameters of a qdisc fq_codel (RFC 8290) inside the bucket.
type FlowQueues struct {
	Target   time.Duration // how long packets of a flow may stand in its queue
	Interval time.Duration // for how long it may be longer before one is dropped
	Memory   uint64        // bytes of kernel memory for all queues
}

// ShaperState is what the kernel tells of a shaper.
type ShaperState struct {
	Rate    uint64 // byte/s; 0: there is no token bucket at the root, or OpenShaper opened it
	Ours    bool   // it carries our number
	Flows   bool   // with a queue a flow
	Backlog uint64 // bytes that wait
}

const (
	openRate = 100e9 // byte/s: holds nothing back
	peakRate = 1e15  // byte/s: 64 KiB take no nanosecond

	flushPause = time.Millisecond
	// A sender that goes on sending finds the full bucket at once. Else the kernel sleeps
	// on until the old rate would have let the next packet go.
	flushTimeout = 50 * time.Millisecond

	narrowTries = 5
	leastStall  = 10 * time.Millisecond // without a packet: it stands still
	mostStall   = time.Second           // that one can wait for
)

// ReadShaper reads the shaper at the root of a device, whosever it is.
func (h *Handle) ReadShaper(index int) (ShaperState, error) {
	root, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err != nil || root.kind != "tbf" {
		return ShaperState{}, err
	}
	rate, err := tbfRate(root.options)
	if err != nil {
		return ShaperState{}, fmt.Errorf("read shaper of device %d: %w", index, err)
	}
	child, err := h.qdisc(index, root.handle|1)
	now := ShaperState{Rate: rate, Ours: root.handle == shaperHandle, Flows: child.kind == "fq_codel", Backlog: root.backlog}
	if now.Ours && rate == openRate {
		now.Rate = 0
	}
	return now, err
}

// ChangeShaper makes s the shaper of a device that is in use. Where one of ours stands,
// its parameters change in place: nothing that waits in it is lost. One of another kind,
// and what is anybody's, goes with what waits in it.
func (h *Handle) ChangeShaper(index int, s Shaper) error {
	root, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err != nil {
		return err
	}
	if root.handle != shaperHandle {
		return h.addShaper(index, s)
	}
	now, err := h.ReadShaper(index)
	if err != nil {
		return err
	}
	if !now.Ours || now.Flows != (s.Flows != nil) {
		if err := h.deleteShaper(index); err != nil {
			return err
		}
		return h.addShaper(index, s)
	}
	return h.narrow(index, s, now.Rate == 0 || now.Rate > s.Rate)
}

// narrow sets the parameters of the shaper that stands until packets leave it. What was
// let in before may be stuck then.
func (h *Handle) narrow(index int, s Shaper, stuck bool) (err error) {
	wait := flushTimeout
	for range narrowTries {
		if stuck {
			err = h.flush(index, s, wait)
		}
		if err = errors.Join(err, h.setShaper(index, s)); err != nil {
			return err
		}
		if stuck, err = h.stuck(index, s); !stuck || err != nil {
			return err
		}
		wait = mostStall // the kernel looks at the segment again when the rate would have had it go
	}
	return nil
}

// stuck says whether packets have ceased to leave a shaper before all have that waited
// in it. A segment that was let in whole while the burst was larger never leaves, and what
// is behind it does not either; what is before it does.
func (h *Handle) stuck(index int, s Shaper) (bool, error) {
	first, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err != nil {
		return false, err
	}
	stall := max(2*time.Duration(s.Burst*1e9/s.Rate), leastStall) // what fills the bucket, twice
	if stall > mostStall {
		return false, nil
	}
	last, deadline := first.sent, time.After(stall)
	for now := first; now.backlog > s.Burst && now.sent-first.sent < 2*first.backlog; { // others may go between
		select {
		case <-deadline:
			return true, nil
		case <-time.After(flushPause):
		}
		if now, err = h.qdisc(index, netlink.HANDLE_ROOT); err != nil {
			return false, err
		}
		if now.sent != last { // it goes on
			last, deadline = now.sent, time.After(stall)
		}
	}
	return false, nil
}

// flush lets go at once what waits and was let in by a larger burst or a longer queue.
// At a rate that is far lower it would stay for seconds, all that comes meanwhile be
// dropped, and a segment of 64 KiB never go. The bucket gets as many bytes as wait, not
// more: what comes behind them goes at the rate of s, and is no larger than its burst.
func (h *Handle) flush(index int, s Shaper, wait time.Duration) error {
	now, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err != nil || now.backlog <= s.Burst {
		return err
	}
	once := s
	once.Burst, once.Queue = now.backlog, s.Burst // a change fills the bucket
	q := tbf(index, once)
	// A peak that holds nothing back, for its burst: what comes meanwhile is cut to that.
	q.Peakrate, q.Minburst = peakRate, uint32(s.Burst)
	if err := modify(h.nl.QdiscChange, q); err != nil {
		return fmt.Errorf("flush shaper of device %d: %w", index, err)
	}
	deadline := time.After(wait)
	for now.backlog > s.Burst {
		select {
		case <-deadline:
			return nil
		case <-time.After(flushPause):
		}
		if now, err = h.qdisc(index, netlink.HANDLE_ROOT); err != nil {
			return err
		}
	}
	return nil
}

// OpenShaper makes our shaper hold nothing back; it is no error that there is none. It
// stays where it is: whatever comes to the root of a device, the kernel drops what is
// sent meanwhile (dev_deactivate), for up to 26 ms on a busy machine (seen).
func (h *Handle) OpenShaper(index int) error {
	now, err := h.ReadShaper(index)
	if err != nil || !now.Ours {
		return err
	}
	if err := modify(h.nl.QdiscChange, tbf(index, wideOpen())); err != nil {
		return fmt.Errorf("open shaper of device %d: %w", index, err)
	}
	return nil
}

// addShaper puts the shaper in the place of what is at the root of the device. The
// queues of flows take the place of the bucket's own one, and what waits there would be
// lost: so the bucket is open until they stand.
func (h *Handle) addShaper(index int, s Shaper) error {
	first := s
	if s.Flows != nil {
		first = wideOpen()
	}
	if err := modify(h.nl.QdiscReplace, tbf(index, first)); err != nil {
		return fmt.Errorf("set shaper of device %d: %w", index, err)
	}
	if s.Flows == nil {
		return nil
	}
	if err := h.narrow(index, s, false); err != nil {
		return errors.Join(err, h.deleteShaper(index))
	}
	return nil
}

// setShaper sets the parameters of the shaper that stands, those of the queues first:
// where the rate is right the rest is.
func (h *Handle) setShaper(index int, s Shaper) error {
	if s.Flows != nil {
		if err := modify(h.nl.QdiscReplace, fqCodel(index, s.Flows)); err != nil {
			return fmt.Errorf("set queues of device %d: %w", index, err)
		}
	}
	if err := modify(h.nl.QdiscChange, tbf(index, s)); err != nil {
		return fmt.Errorf("change shaper of device %d: %w", index, err)
	}
	return nil
}

func (h *Handle) deleteShaper(index int) error {
	err := h.deleteRoot(index, shaperHandle)
	if err != nil {
		return fmt.Errorf("delete shaper of device %d: %w", index, err)
	}
	return nil
}

// wideOpen is a bucket that holds nothing back.
func wideOpen() Shaper { return Shaper{Rate: openRate, Burst: 64 << 20, Queue: 64 << 20} }
