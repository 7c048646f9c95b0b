// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// A probe is a datagram that is as large as ping's, 64 bytes with its header, and is
// answered with the same: number, when it arrived and when it was sent back. The
// kernel stamps arrivals, so what is measured is the network: not how long a program
// waits for a processor.
const (
	probeBytes = 56
	probeFrame = 14 + 20 + 8 + probeBytes // at the wire: 4 % of a limit of 1 Mbit/s
	probeEvery = 20 * time.Millisecond
)

// serveEcho answers probes until close.
func serveEcho(ns *netns.NS) (closer func(), err error) {
	var c *net.UDPConn
	if err := ns.Do(func() (err error) { c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: echoPort}); return err }); err != nil {
		return nil, fmt.Errorf("serve probes in %s: %w", ns.Name, err)
	}
	if err := stamped(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	var busy sync.WaitGroup
	busy.Go(func() {
		buf, oob := make([]byte, probeBytes), make([]byte, 128)
		for {
			n, on, _, from, err := c.ReadMsgUDPAddrPort(buf, oob)
			if err != nil {
				return
			}
			if n != probeBytes {
				continue
			}
			binary.BigEndian.PutUint64(buf[8:], uint64(stamp(oob[:on])))
			binary.BigEndian.PutUint64(buf[16:], uint64(time.Now().UnixNano()))
			_, _ = c.WriteToUDPAddrPort(buf, from)
		}
	})
	return func() { _ = c.Close(); busy.Wait() }, nil
}

// probe is a series of probes, one every probeEvery.
type probe struct {
	conn  *net.UDPConn
	start time.Time
	quit  chan struct{}
	busy  sync.WaitGroup

	mu   sync.Mutex
	sent []int64         // when, in ns of the clock
	rtts []time.Duration // 0: no answer
}

func startProbe(ns *netns.NS, to netip.AddrPort) (*probe, error) {
	p := &probe{quit: make(chan struct{}), start: time.Now()}
	err := ns.Do(func() (err error) { p.conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to)); return err })
	if err == nil {
		err = stamped(p.conn)
	}
	if err != nil {
		return nil, fmt.Errorf("probe %s from %s: %w", to, ns.Name, err)
	}
	p.busy.Go(p.send)
	p.busy.Go(p.receive)
	return p, nil
}

func (p *probe) send() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	buf := make([]byte, probeBytes)
	for {
		p.mu.Lock()
		binary.BigEndian.PutUint64(buf, uint64(len(p.sent)))
		p.sent, p.rtts = append(p.sent, time.Now().UnixNano()), append(p.rtts, 0)
		p.mu.Unlock()
		_, _ = p.conn.Write(buf)
		select {
		case <-p.quit:
			return
		case <-tick.C:
		}
	}
}

func (p *probe) receive() {
	buf, oob := make([]byte, probeBytes), make([]byte, 128)
	for {
		n, on, _, _, err := p.conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) || p.over() {
				return
			}
			continue // refused: the server was not there yet
		}
		if n != probeBytes {
			continue
		}
		i := binary.BigEndian.Uint64(buf)
		arrived, back := int64(binary.BigEndian.Uint64(buf[8:])), int64(binary.BigEndian.Uint64(buf[16:]))
		p.mu.Lock()
		if i < uint64(len(p.sent)) {
			p.rtts[i] = time.Duration(arrived - p.sent[i] + stamp(oob[:on]) - back)
		}
		p.mu.Unlock()
	}
}

func (p *probe) over() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// sample is one probe: when it was sent, counted from the first, and its round trip; 0
// if it was lost.
type sample struct{ at, rtt time.Duration }

// stop waits for the last answers, but not for longer than they may take.
func (p *probe) stop(atMost time.Duration) []sample {
	close(p.quit)
	deadline := time.Now().Add(atMost)
	_ = p.conn.SetReadDeadline(deadline)
	for !p.answered() && time.Now().Before(deadline) {
		time.Sleep(probeEvery)
	}
	_ = p.conn.SetReadDeadline(time.Unix(1, 0))
	p.busy.Wait()
	_ = p.conn.Close()
	var all []sample
	for i, at := range p.sent {
		all = append(all, sample{time.Duration(at - p.sent[0]), p.rtts[i]})
	}
	return all
}

func (p *probe) answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rtt := range p.rtts {
		if rtt == 0 {
			return false
		}
	}
	return true
}

// stamped has the kernel say when a datagram arrived.
func stamped(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var opt error
	err = raw.Control(func(fd uintptr) { opt = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if err == nil {
		err = opt
	}
	return err
}

// stamp is that moment, or now.
func stamp(oob []byte) int64 {
	msgs, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
		}
	}
	return time.Now().UnixNano()
}
