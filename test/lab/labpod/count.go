// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Intervals of one counter. A datagram is lost when no answer came within lostAfter; a connection fails when it
// was not made and answered within newPatience, which is more than two retransmissions of a SYN.
const (
	udpEvery    = 50 * time.Millisecond
	keptEvery   = 50 * time.Millisecond
	newEvery    = 200 * time.Millisecond
	stall       = 500 * time.Millisecond
	lostAfter   = 2 * time.Second
	newPatience = 4 * time.Second
)

// count asks every target without end and tells on HTTP what was lost: /counts, and /reset to begin anew.
// A target is NAME=ADDRESS of a pod that runs "labpod serve".
func count(targets []string) error {
	var all []*tally
	p := newPulse()
	for _, arg := range targets {
		name, addr, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("read target %q: no NAME=ADDRESS", arg)
		}
		family := "IPv4"
		if strings.Contains(addr, ":") {
			family = "IPv6"
		}
		for kind, ask := range map[string]func(string, *tally){"udp": countUDP, "kept": countKept, "new": countNew} {
			t := newTally(p, name+" "+family, kind)
			all = append(all, t)
			go ask(addr, t)
		}
	}
	http.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/reset", func(http.ResponseWriter, *http.Request) {
		for _, t := range all {
			t.reset()
		}
	})
	http.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) {
		states := make([]*tally, 0, len(all))
		for _, t := range all {
			states = append(states, t.state())
		}
		_ = json.NewEncoder(w).Encode(states)
	})
	return http.ListenAndServe(httpPort, nil)
}

func countUDP(addr string, t *tally) {
	conn, err := net.Dial("udp", net.JoinHostPort(addr, udpPort[1:]))
	if err != nil {
		fmt.Println("count:", err)
		return
	}
	go func() {
		buf := make([]byte, 512)
		for {
			// ICMP errors are answers of nobody; the datagram's age tells.
			if n, err := conn.Read(buf); err == nil && n >= 8 {
				t.answer(binary.BigEndian.Uint64(buf))
			} else if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	buf := make([]byte, 8)
	id := uint64(0)
	for range time.Tick(udpEvery) {
		id++
		binary.BigEndian.PutUint64(buf, id)
		t.send(id)
		_, _ = conn.Write(buf)
		t.lose(lostAfter)
	}
}

// countKept keeps one connection. What TCP delivers late is not lost; it shows in the longest gap.
func countKept(addr string, t *tally) {
	id := uint64(0)
	for range time.Tick(newEvery) {
		conn, err := echoDial(addr)
		if err != nil {
			continue
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 8)
			for {
				if _, err := io.ReadFull(conn, buf); err != nil {
					return
				}
				t.answer(binary.BigEndian.Uint64(buf))
			}
		}()
		id = keep(conn, t, id, done)
		conn.Close()
		t.broke()
	}
}

func keep(conn net.Conn, t *tally, id uint64, done <-chan struct{}) uint64 {
	buf := make([]byte, 8)
	tick := time.NewTicker(keptEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return id
		case <-tick.C:
		}
		id++
		binary.BigEndian.PutUint64(buf, id)
		t.send(id)
		if _, err := conn.Write(buf); err != nil {
			return id
		}
	}
}

func countNew(addr string, t *tally) {
	id := uint64(0)
	for range time.Tick(newEvery) {
		id++
		t.send(id)
		go func(id uint64) {
			if once(addr) == nil {
				t.answer(id)
			}
		}(id)
		t.lose(newPatience + time.Second)
	}
}
