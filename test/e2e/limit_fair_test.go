// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

const (
	probes = 50                    // an emulated machine: 10
	late   = 50 * time.Millisecond // beside a full limit, more than beside nothing
	spared = 2                     // of the probes may be later, or lost
)

// B3: through a limit that one or many bulk flows fill, a ping, a small request on a
// connection of its own and one of 1000 bytes on an open connection take at most 50 ms
// longer than through an idle one.
func TestPrivilegedB3Fair(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	c.Outside().Serve(t, 80)
	for _, rate := range []uint64{10e6, 100e6} {
		var both sync.WaitGroup
		for _, direction := range []string{"ingress", "egress"} {
			name := fmt.Sprintf("%s%dM", direction, rate/1e6)
			p, _ := serve(t, c.Nodes[0], netns.PodSpec{Name: name, Bandwidth: limit(direction, rate)})
			both.Go(func() {
				for _, flows := range []int{1, 10, 50} {
					if netns.Emulated() && (flows != 10 || rate > 10e6) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%d", name, flows), func(t *testing.T) { fair(t, c, p, direction, flows) })
				}
			})
		}
		both.Wait()
	}
}

// fair probes the idle limit and then the full one, up to three times.
func fair(t *testing.T, c *cluster, p *netns.Pod, direction string, flows int) {
	outside := c.Outside()
	s := netns.Stream{Proto: "tcp", From: outside.NS, To: p.NS, Dst: p.V4, Flows: flows}
	from, to := outside.NS, p.V4
	if direction == "egress" {
		s.From, s.To, s.Dst, from, to = p.NS, outside.NS, outside.V4, p.NS, outside.V4
	}
	for try := 1; ; try++ {
		idle := probe(t, from, to)
		r, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(300 * time.Millisecond) // past slow start
		full := probe(t, from, to)
		sent := r.Total()
		r.Stop()
		var errs []error
		for kind := range full {
			t.Logf("%s: idle %v, beside %d flows %v", kind, idle[kind], flows, full[kind])
			if extra := full[kind] - idle[kind]; extra > late && (!netns.Emulated() || extra > netns.Patience) {
				errs = append(errs, fmt.Errorf("%s: %v beside nothing, %v beside %d flows (%d of %d may be later)", kind, idle[kind], full[kind], flows, spared, probes))
			}
		}
		if sent == 0 || r.Err() != nil {
			errs = append(errs, fmt.Errorf("%d bytes of bulk: %w", sent, r.Err()))
		}
		if errs == nil {
			return
		}
		if try == 3 {
			t.Error(errors.Join(errs...))
			return
		}
	}
}

// probe pings and asks, side by side, and returns how long the slowest of each took, those
// that may be late or lost left out.
func probe(t *testing.T, from *netns.NS, to netip.Addr) map[string]time.Duration {
	t.Helper()
	n, most := probes, 900*time.Millisecond
	if netns.Emulated() {
		n, most = 10, netns.Patience
	}
	took := map[string]time.Duration{}
	open, err := from.Open(netns.Call{Proto: "tcp", To: netip.AddrPortFrom(to, 80), Size: 1000, Timeout: most})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	var mu sync.Mutex
	var all sync.WaitGroup
	for kind, try := range map[string]func() error{
		"open": func() error {
			_, err := open.Ask()
			return err
		},
		"ping": func() error { return from.Ping(to, 56, most) },
		"request": func() error {
			_, err := from.Ask(netns.Call{Proto: "tcp", To: netip.AddrPortFrom(to, 80), Size: 100, Timeout: most})
			return err
		},
	} {
		all.Go(func() {
			var each []time.Duration
			for range n {
				start := time.Now()
				if err := try(); err != nil {
					each = append(each, time.Hour)
				} else {
					each = append(each, time.Since(start))
				}
				<-time.After(5 * time.Millisecond)
			}
			slices.Sort(each)
			mu.Lock()
			defer mu.Unlock()
			took[kind] = each[n-1-spared]
		})
	}
	all.Wait()
	return took
}
