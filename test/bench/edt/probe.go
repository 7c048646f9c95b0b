// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-cni/culvert/test/bench/stats"
	"github.com/culvert-cni/culvert/test/netns"
)

const (
	echoPort = 7
	every    = 20 * time.Millisecond
	lateness = 500 * time.Millisecond // an answer that takes longer is lost
	udpWire  = 14 + 20 + 8            // headers of a datagram
)

// echo sends every datagram back, until c is closed.
func echo(c *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(buf[:n], from)
	}
}

// small is a small flow: datagrams of one size, each answered by its like.
type small struct {
	sent int
	rtts []time.Duration // of those that were answered, shortest first
}

// ask sends a datagram of size bytes each 20 ms for a window, and waits for the last answer.
func ask(from *netns.NS, to netip.Addr, size int, window time.Duration) (f small, err error) {
	var c *net.UDPConn
	err = from.Do(func() (err error) {
		c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, echoPort)))
		return err
	})
	if err != nil {
		return f, err
	}
	defer c.Close()
	sent := make([]time.Time, int(window/every))
	rtts := make(chan []time.Duration, 1)
	start := time.Now()
	_ = c.SetReadDeadline(start.Add(window + lateness))
	var mu sync.Mutex
	go func() {
		var got []time.Duration
		buf := make([]byte, 2048)
		for len(got) < len(sent) {
			if _, err := c.Read(buf); err != nil {
				break
			}
			mu.Lock()
			rtt := time.Since(sent[binary.BigEndian.Uint32(buf)])
			mu.Unlock()
			got = append(got, rtt)
		}
		rtts <- got
	}()
	msg := make([]byte, size)
	for i := range sent {
		time.Sleep(time.Until(start.Add(time.Duration(i) * every)))
		binary.BigEndian.PutUint32(msg, uint32(i))
		mu.Lock()
		sent[i] = time.Now()
		mu.Unlock()
		if _, err := c.Write(msg); err != nil && !dropped(err) {
			return f, fmt.Errorf("ask %s: %w", to, err)
		}
	}
	f = small{sent: len(sent), rtts: <-rtts}
	slices.Sort(f.rtts)
	return f, nil
}

// quantile of the answers in ms, NaN if there were none.
func (f small) quantile(q float64) float64 {
	var ms []float64
	for _, rtt := range f.rtts {
		ms = append(ms, rtt.Seconds()*1e3)
	}
	return stats.Quantile(ms, q)
}

// loss in percent.
func (f small) loss() float64 { return 100 * float64(f.sent-len(f.rtts)) / float64(f.sent) }

// wire is what the answered requests took of the limit, in bits.
func (f small) wire(size int) float64 { return float64(8 * (size + udpWire) * len(f.rtts)) }
