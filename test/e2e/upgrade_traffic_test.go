// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// ongoing is traffic that goes on while programs are replaced: connections that are kept and asked again
// and again, and datagrams at a fixed rate of which each is to be answered once.
type ongoing struct {
	stop      chan struct{}
	busy      sync.WaitGroup
	questions atomic.Int64
	repeated  atomic.Int64 // segments
	mu        sync.Mutex
	resets    []error
	senders   []*datagrams

	begun              time.Time
	stalled, stalledAt time.Duration // the longest time that the test did not run, and when it ended
}

// way is a caller and what it calls.
type way struct {
	name string
	from *netns.NS
	to   netip.AddrPort
}

func newOngoing() *ongoing {
	tr := &ongoing{stop: make(chan struct{}), begun: time.Now()}
	tr.watch()
	return tr
}

// stream keeps one TCP connection. One that stays silent for half a minute, in which TCP
// repeats what was lost many times, is as bad as one that is reset.
func (tr *ongoing) stream(t *testing.T, w way) {
	t.Helper()
	var c net.Conn
	d := net.Dialer{Timeout: netns.Patience}
	if err := w.from.Do(func() (err error) { c, err = d.Dial("tcp", w.to.String()); return err }); err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	t.Cleanup(func() { c.Close() })
	tr.busy.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := uint64(1); ; n++ {
			select {
			case <-tr.stop:
				tr.account(c)
				return
			case <-tick.C:
			}
			if err := question(c, n); err != nil {
				tr.mu.Lock()
				tr.resets = append(tr.resets, fmt.Errorf("%s, at %s: %w", w.name, time.Since(tr.begun).Round(time.Millisecond), err))
				tr.mu.Unlock()
				return
			}
			tr.questions.Add(1)
		}
	})
}

// once connects, asks and closes.
func (tr *ongoing) once(w way) error {
	var c net.Conn
	begun := time.Since(tr.begun).Round(time.Millisecond)
	d := net.Dialer{Timeout: silence}
	err := w.from.Do(func() (err error) { c, err = d.Dial("tcp", w.to.String()); return err })
	if err == nil {
		defer c.Close()
		defer tr.account(c)
		err = question(c, 1)
	}
	if err != nil {
		return fmt.Errorf("%s, begun at %s: %w", w.name, begun, err)
	}
	return nil
}

// question has its answer or an error that tells what TCP knows.
func question(c net.Conn, n uint64) error {
	want, got := binary.BigEndian.AppendUint64(nil, n), make([]byte, 8)
	_ = c.SetDeadline(time.Now().Add(silence))
	_, err := c.Write(want)
	if err == nil {
		_, err = io.ReadFull(c, got)
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%x is no answer", got)
	}
	if err != nil {
		return fmt.Errorf("question %d: %w (%s)", n, err, describe(c))
	}
	return nil
}

// account counts what TCP had to repeat: a loss that nobody else notices.
func (tr *ongoing) account(c net.Conn) {
	if info, err := tcpInfo(c); err == nil {
		tr.repeated.Add(int64(info.Total_retrans))
	}
}

const silence = 30 * time.Second

// describe says of a connection that failed whether packets were lost, or somebody did not
// read.
func describe(c net.Conn) string {
	info, err := tcpInfo(c)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("state %d, %d segments unacknowledged, repeated %d times, %d in all, last data received %d ms ago, sent %d ms ago",
		info.State, info.Unacked, info.Retransmits, info.Total_retrans, info.Last_data_recv, info.Last_data_sent)
}

func tcpInfo(c net.Conn) (info *unix.TCPInfo, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	ctl := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, errors.Join(ctl, err)
}

// watch measures how long the test itself does not run: what times out meanwhile does so
// for want of a processor.
func (tr *ongoing) watch() {
	tr.busy.Go(func() {
		const every = 10 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tr.stop:
				return
			case <-tick.C:
			}
			now := time.Now()
			if gap := now.Sub(last) - every; gap > tr.stalled {
				tr.stalled, tr.stalledAt = gap, now.Sub(tr.begun)
			}
			last = now
		}
	})
}

// echoTCP answers every connection with what it says.
func echoTCP(t *testing.T, ns *netns.NS, port uint16) {
	t.Helper()
	stop, err := ns.Accept("tcp", port, netns.SendBack)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// end stops everything and gives what was reset and what was lost.
func (tr *ongoing) end(t *testing.T) (resets, lost int) {
	t.Helper()
	close(tr.stop)
	tr.busy.Wait()
	for _, err := range tr.resets {
		t.Error(err)
	}
	for _, d := range tr.senders {
		missing := d.missing()
		if len(missing) > 0 {
			t.Errorf("%s: of %d datagrams %d were not answered, the first of them number %d", d.way.name, d.sent.Load(), len(missing), missing[0])
		}
		if n := d.twice.Load(); n > 0 {
			t.Errorf("%s: %d were answered twice", d.way.name, n)
		}
		lost += len(missing)
	}
	return len(tr.resets), lost
}

func (tr *ongoing) sent() (n int64) {
	for _, d := range tr.senders {
		n += d.sent.Load()
	}
	return n
}
