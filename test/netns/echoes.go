// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// Echoes is the echo requests that reached a namespace.
type Echoes struct {
	mu   sync.Mutex
	last netip.Addr
	n    int
}

// Echoes watches the namespace until the test ends.
func (ns *NS) Echoes(tb testing.TB) *Echoes {
	tb.Helper()
	e := &Echoes{}
	for _, v6 := range []bool{false, true} {
		any := netip.IPv4Unspecified()
		if v6 {
			any = netip.IPv6Unspecified()
		}
		var pc net.PacketConn
		err := ns.Do(func() (err error) { pc, err = net.ListenPacket(icmpNetwork(any), ""); return err })
		if err != nil {
			tb.Fatalf("watch echo requests in %s: %v", ns.Name, err)
		}
		tb.Cleanup(func() { _ = pc.Close() })
		go e.watch(pc, v6)
	}
	return e
}

func (e *Echoes) watch(pc net.PacketConn, v6 bool) {
	request, _ := echoMessage(v6, 0, nil)
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		if n >= 8 && buf[0] == request[0] {
			a, _ := netip.ParseAddr(from.String())
			e.mu.Lock()
			e.last, e.n = a, e.n+1
			e.mu.Unlock()
		}
	}
}

// Count is how many came.
func (e *Echoes) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

// After waits until more than n came, and returns who sent the last.
func (e *Echoes) After(n int) (from netip.Addr, err error) {
	err = Poll(func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.n <= n {
			return errors.New("no echo request came")
		}
		from = e.last
		return nil
	})
	return from, err
}
