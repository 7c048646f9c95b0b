// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// bursts are what runtimes ask for beside a rate.
var bursts = map[string]uint64{
	"containerd": 1<<32 - 1,
	"CRI-O":      8 * (1<<31 - 1),
	"none":       0,
}

// B2: the first second of a pod that has been idle has at most 1.25 of the rate and the
// capped burst, whatever burst the runtime asked for.
func TestPrivilegedB2FirstSecond(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	turn := make(chan struct{}, 6)
	var all sync.WaitGroup
	for _, rate := range []uint64{1e6, 10e6, 100e6} {
		for asked, burst := range bursts {
			if netns.Emulated() && (rate != 10e6 || asked != "CRI-O") {
				continue
			}
			for _, direction := range []string{"ingress", "egress"} {
				for _, proto := range []string{"tcp", "udp"} {
					name := fmt.Sprintf("%s-%s-%s-%dM", asked, direction, proto, rate/1e6)
					b := &netns.Bandwidth{IngressRate: rate, IngressBurst: burst}
					if direction == "egress" {
						b = &netns.Bandwidth{EgressRate: rate, EgressBurst: burst}
					}
					p := c.Nodes[0].Add(t, netns.PodSpec{Name: name, Bandwidth: b})
					all.Go(func() {
						turn <- struct{}{}
						defer func() { <-turn }()
						t.Run(name, func(t *testing.T) { firstSecond(t, c, p, proto, direction, rate) })
					})
				}
			}
		}
	}
	all.Wait()
}

func firstSecond(t *testing.T, c *cluster, p *netns.Pod, proto, direction string, rate uint64) {
	outside, to := c.Outside(), maps.Ingress
	s := netns.Stream{Proto: proto, From: outside.NS, To: p.NS, Dst: p.V4, Offer: 5 * rate}
	if direction == "egress" {
		s.From, s.To, s.Dst, to = p.NS, outside.NS, outside.V4, maps.Egress
	}
	row, err := tables(t, p.Node).Limits.Get(devices(t, p.Node.NS)[p.Host.Name].Index, to)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Series(time.Second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	first, most := got[0], 1.25*float64(rate)+float64(row.Burst)
	least := lowest / 2 * float64(rate)
	if rate == 10e6 { // M12
		most = min(most, 1.1*float64(rate)+8*128e3)
	}
	if netns.Emulated() {
		least = 1
	}
	t.Logf("%.3f Mbit, burst of %d bit", first/1e6, row.Burst)
	if first > most || first < least {
		t.Errorf("first second: want %.2f to %.2f Mbit, got %.2f", least/1e6, most/1e6, first/1e6)
	}
}
