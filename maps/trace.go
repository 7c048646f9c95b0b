// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
)

// TraceFilter is which packets are told of; a zero value is any.
type TraceFilter struct {
	Host      netip.Addr // source or destination, before or after translation
	Port      uint16     // likewise
	Proto     uint8      // of ICMP, IPv4's number is both
	Ifindex   int        // host side of a pod: packets there, and to or from its addresses
	DropsOnly bool
}

// Trace is the tables trace and events: one reader's, who takes care that there is no other
// one. While it is not started the datapath tells nothing. Read belongs to one goroutine.
type Trace struct {
	rows, events *ebpf.Map
	memory       []byte // of the row
	reader       *ringbuf.Reader
	record       ringbuf.Record
	since        time.Duration
	began        uint64 // lost before
}

// OpenTrace opens the two tables pinned in dir. One that is not there is an error that wraps
// fs.ErrNotExist.
func OpenTrace(dir string) (*Trace, error) {
	t := &Trace{}
	if err := t.open(dir); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Trace) open(dir string) (err error) {
	for name, m := range map[string]**ebpf.Map{bpf.DatapathMapTrace: &t.rows, bpf.DatapathMapEvents: &t.events} {
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(dir, name), nil); err != nil {
			return fmt.Errorf("open map %s in %s: %w", name, dir, err)
		}
	}
	if t.rows.ValueSize() != uint32(unsafe.Sizeof(*t.row())) {
		return fmt.Errorf("map trace in %s: %d bytes are no row", dir, t.rows.ValueSize())
	}
	if t.memory, err = unix.Mmap(t.rows.FD(), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map the row of trace: %w", err)
	}
	if t.reader, err = ringbuf.NewReader(t.events); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return nil
}

// row is the kernel's memory: what programs count there is not written over.
func (t *Trace) row() *bpf.DatapathTraceFilter {
	return (*bpf.DatapathTraceFilter)(unsafe.Pointer(unsafe.SliceData(t.memory)))
}

// Start has the datapath tell of packets from now on, until a time of CLOCK_MONOTONIC that
// Extend moves on: a reader who is killed leaves nothing behind.
func (t *Trace) Start(f TraceFilter, now, until time.Duration) {
	row := t.row()
	atomic.StoreUint64(&row.UntilNs, 0)
	row.Host, row.Port, row.Proto, row.Ifindex, row.Flags = toAddr(f.Host), f.Port, f.Proto, uint32(f.Ifindex), 0
	if f.DropsOnly {
		row.Flags = bpf.DatapathTraceFlagTRACE_DROPS_ONLY
	}
	t.since, t.began = now, atomic.LoadUint64(&row.Lost)
	t.Extend(until)
}

// Extend moves the time on at which the datapath falls silent.
func (t *Trace) Extend(until time.Duration) { atomic.StoreUint64(&t.row().UntilNs, uint64(until)) }

// Lost is how many events have found no room since Start.
func (t *Trace) Lost() uint64 { return atomic.LoadUint64(&t.row().Lost) - t.began }

// Read waits for an event; os.ErrDeadlineExceeded is that none came, os.ErrClosed that
// Interrupt was called. more says that another one is there already. What is left of an
// earlier reader is passed over.
func (t *Trace) Read(deadline time.Time) (e Event, more bool, err error) {
	t.reader.SetDeadline(deadline)
	for {
		err := t.reader.ReadInto(&t.record)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
			return Event{}, false, err
		}
		if err != nil {
			return Event{}, false, fmt.Errorf("read events: %w", err)
		}
		if e, err = decodeEvent(t.record.RawSample); err != nil || e.Time >= t.since {
			return e, t.record.Remaining > 0, err
		}
	}
}

// Interrupt ends a Read, and every later one. It may be called from any goroutine.
func (t *Trace) Interrupt() { t.reader.Close() }

// Pinned says whether the tables pinned in dir are still these.
func (t *Trace) Pinned(dir string) bool {
	now, err := ebpf.LoadPinnedMap(filepath.Join(dir, bpf.DatapathMapEvents), nil)
	if err != nil {
		return false
	}
	defer now.Close()
	ours, err := mapID(t.events)
	theirs, err2 := mapID(now)
	return err == nil && err2 == nil && ours == theirs
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

// Close has the datapath fall silent and releases everything.
func (t *Trace) Close() error {
	var errs []error
	if t.memory != nil {
		t.Extend(0)
		errs = append(errs, unix.Munmap(t.memory))
		t.memory = nil
	}
	if t.reader != nil {
		errs = append(errs, t.reader.Close())
	}
	for _, m := range []*ebpf.Map{t.rows, t.events} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
