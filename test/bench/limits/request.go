// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

const (
	requestEvery   = 50 * time.Millisecond // or when the last was answered
	requestTimeout = 2 * time.Second
)

// serveRequests sends back what it is sent, by TCP, until close.
func serveRequests(ns *netns.NS) (closer func(), err error) {
	return ns.Accept("tcp4", requestPort, netns.SendBack)
}

// requests is a series of requests, one after the other.
type requests struct {
	ns    *netns.NS
	to    netip.AddrPort
	bytes int      // there, and as many back
	keep  net.Conn // one connection for all; nil: one for each

	quit    chan struct{}
	busy    sync.WaitGroup
	samples []sample
}

func startRequests(ns *netns.NS, to netip.Addr, bytes int, keep bool) (*requests, error) {
	r := &requests{ns: ns, to: netip.AddrPortFrom(to, requestPort), bytes: bytes, quit: make(chan struct{})}
	if keep {
		var err error
		if r.keep, err = r.dial(); err != nil {
			return nil, err
		}
	}
	r.busy.Go(r.run)
	return r, nil
}

// stop waits for the last answer.
func (r *requests) stop() []sample {
	close(r.quit)
	r.busy.Wait()
	if r.keep != nil {
		_ = r.keep.Close()
	}
	return r.samples
}

func (r *requests) run() {
	tick := time.NewTicker(requestEvery)
	defer tick.Stop()
	first := time.Now()
	for {
		s := sample{at: time.Since(first)}
		start := time.Now()
		if err := r.ask(); err == nil {
			s.rtt = time.Since(start)
		} else if r.keep != nil { // the answer may still come
			_ = r.keep.Close()
			if c, err := r.dial(); err == nil {
				r.keep = c
			}
		}
		r.samples = append(r.samples, s)
		select {
		case <-r.quit:
			return
		case <-tick.C:
		}
	}
}

func (r *requests) ask() error {
	c := r.keep
	if c == nil {
		var err error
		if c, err = r.dial(); err != nil {
			return err
		}
		defer c.Close()
	}
	_ = c.SetDeadline(time.Now().Add(requestTimeout))
	buf := make([]byte, r.bytes)
	if _, err := c.Write(buf); err != nil {
		return err
	}
	_, err := io.ReadFull(c, buf)
	return err
}

func (r *requests) dial() (c net.Conn, err error) {
	err = r.ns.Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", r.to.String(), requestTimeout)
		return err
	})
	return c, err
}
