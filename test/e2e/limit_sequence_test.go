// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// sequence is datagrams with numbers, a thousand a second.
type sequence struct {
	name       string
	from, to   *net.UDPConn
	sent, came atomic.Uint64
	seen       []bool // by number, the receiver's
	spared     uint64 // may be lost
	quit       chan struct{}
	once       sync.Once
	busy       sync.WaitGroup
}

func newSequence(t *testing.T, from, to *netns.NS, at netip.Addr) *sequence {
	t.Helper()
	s := &sequence{name: fmt.Sprintf("%s -> %s", from.Name, to.Name), quit: make(chan struct{})}
	err := to.Do(func() (err error) { s.to, err = net.ListenUDP("udp", nil); return err })
	if err == nil {
		port := s.to.LocalAddr().(*net.UDPAddr).Port
		err = from.Do(func() (err error) {
			s.from, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: at.AsSlice(), Port: port})
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	s.busy.Go(s.receive)
	s.busy.Go(s.send)
	return s
}

func (s *sequence) send() {
	buf := make([]byte, 200)
	pause := unix.NsecToTimespec(int64(time.Millisecond))
	for {
		select {
		case <-s.quit:
			return
		default:
		}
		binary.BigEndian.PutUint64(buf, s.sent.Load())
		if _, err := s.from.Write(buf); err == nil { // an error is the sender's to know: ENOBUFS
			s.sent.Add(1)
		}
		_ = unix.Nanosleep(&pause, nil)
	}
}

// receive counts each number once.
func (s *sequence) receive() {
	buf := make([]byte, 256)
	for {
		n, err := s.to.Read(buf)
		if err != nil {
			return
		}
		number := int(binary.BigEndian.Uint64(buf[:n]))
		if s.seen = append(s.seen, make([]bool, max(0, number+1-len(s.seen)))...); !s.seen[number] {
			s.seen[number] = true
			s.came.Add(1)
		}
	}
}

// close ends the receiver too; idempotent.
func (s *sequence) close() {
	s.stop()
	_ = s.to.Close()
	s.busy.Wait()
	_ = s.from.Close()
}

func (s *sequence) stop() { s.once.Do(func() { close(s.quit) }) }

func (s *sequence) further(than uint64) error {
	if now := s.sent.Load(); now < than {
		return fmt.Errorf("%s: %d of %d sent", s.name, now, than)
	}
	return nil
}

// whole is for when nothing is sent any more.
func (s *sequence) whole() error {
	if sent, came := s.sent.Load(), s.came.Load(); sent > came+s.spared || sent < 300 {
		return fmt.Errorf("%s: %d datagrams sent, %d came", s.name, sent, came)
	}
	return nil
}

// missing is the numbers that did not come; call it when all has ended.
func (s *sequence) missing() (list []int) {
	for number, came := range s.seen {
		if !came {
			list = append(list, number)
		}
	}
	return list
}
