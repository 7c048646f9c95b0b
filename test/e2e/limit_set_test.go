// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// setting is one change of a limit: of both directions, to what culvertctl calls it.
type setting struct {
	name string
	rate uint64 // 0: none
}

// settings go up, down, far up and down, and away and back.
var settings = []setting{{"20M", 20e6}, {"5M", 5e6}, {"100M", 100e6}, {"10M", 10e6}, {"none", 0}, {"10M", 10e6}, {"0", 0}, {"10000k", 10e6}}

// setOffer is the UDP beside it, in bit/s.
func setOffer() uint64 {
	if netns.Emulated() {
		return 25e6
	}
	return 115e6
}

// setLimits runs culvertctl, which has to print the pod's rows.
func setLimits(t testing.TB, p *netns.Pod, rate string) {
	t.Helper()
	ctl := filepath.Join(p.Node.Bin.Dir, "culvertctl")
	p.Node.MustRun(t, "", ctl, "--pin-path", p.Node.PinPath, "limits", "set", p.ID, "--ingress", rate, "--egress", rate)
}

// B6: a limit that is set while the pod runs rules 100 ms later, in both directions, up,
// down, from none and to none; CHECK agrees with it.
func TestPrivilegedB6Rate(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	outside := c.Outside()
	limited := c.Nodes[0].Add(t, netns.PodSpec{Name: "limited", Bandwidth: &netns.Bandwidth{IngressRate: 10e6, EgressRate: 10e6}})
	free := c.Nodes[0].Add(t, netns.PodSpec{Name: "free"})
	var both sync.WaitGroup
	for _, p := range []*netns.Pod{limited, free} {
		run := func() { t.Run(p.Name, func(t *testing.T) { throughSettings(t, p, outside, p == limited, settings) }) }
		if netns.Emulated() {
			run()
		} else {
			both.Go(run)
		}
	}
	both.Wait()
}

func throughSettings(t *testing.T, p *netns.Pod, outside *netns.Peer, limited bool, settings []setting) {
	flows := map[string]*netns.Running{}
	for direction, s := range bothWays(p, outside) {
		s.Proto, s.Offer = "udp", setOffer()
		r, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		flows[direction] = r
	}
	last := setting{"0", 0}
	if limited {
		last = setting{"10M", 10e6}
	}
	for _, next := range settings {
		t.Run(last.name+"-"+next.name, func(t *testing.T) { changes(t, p, flows, last, next) })
		last = next
		if err := p.Check(); err != nil {
			t.Errorf("CHECK at %s: %v", next.name, err)
		}
	}
}

// bothWays is a stream in each direction.
func bothWays(p *netns.Pod, outside *netns.Peer) map[string]netns.Stream {
	return map[string]netns.Stream{
		"ingress": {From: outside.NS, To: p.NS, Dst: p.V4},
		"egress":  {From: p.NS, To: outside.NS, Dst: outside.V6},
	}
}

// changes sets a limit and wants its rate over the 500 ms from 100 ms after the command
// was begun; up to three times.
func changes(t *testing.T, p *netns.Pod, flows map[string]*netns.Running, last, next setting) {
	least, most := bounds()
	least, most = least*float64(next.rate), most*float64(next.rate)
	if next.rate == 0 {
		least, most = 0.7*float64(setOffer()), 2*float64(setOffer())
	}
	if netns.Emulated() {
		least = 1
	}
	for try := 1; ; try++ {
		start := time.Now()
		setLimits(t, p, next.name)
		took := time.Since(start)
		<-time.After(100*time.Millisecond - took)
		before := map[string]uint64{}
		start = time.Now()
		for d, r := range flows {
			before[d] = r.Total()
		}
		<-time.After(500 * time.Millisecond)
		bad := ""
		for d, r := range flows {
			got := float64(r.Total()-before[d]) * 8 / time.Since(start).Seconds()
			if got < least || got > most {
				bad += fmt.Sprintf("%s of %s: want %.2f to %.2f Mbit/s, got %.2f; ", d, next.name, least/1e6, most/1e6, got/1e6)
			}
		}
		if took > time.Second && !netns.Emulated() {
			bad += fmt.Sprintf("the command took %v", took)
		}
		if bad == "" {
			return
		}
		if try == 3 {
			t.Error(bad)
			return
		}
		t.Logf("again, after %s", bad)
		setLimits(t, p, last.name)
	}
}

// B6: a change loses no datagram of those that neither limit has anything against, and
// interrupts no connection.
func TestPrivilegedB6Lossless(t *testing.T) {
	netns.RequireRoot(t)
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	// One after the other: what an unlimited stream leaves no processor for is lost too.
	ten := &netns.Bandwidth{IngressRate: 10e6, EgressRate: 10e6}
	for _, tc := range []struct {
		name  string
		limit *netns.Bandwidth
		run   func(*testing.T, *netns.Pod, *netns.Peer)
	}{{"Datagrams", ten, numbered}, {"DatagramsFromNone", nil, numbered}, {"Streams", ten, streams}} {
		t.Run(tc.name, func(t *testing.T) {
			tc.run(t, node.Add(t, netns.PodSpec{Name: tc.name, Bandwidth: tc.limit}), outside)
		})
	}
}

// numbered changes the limit while datagrams with numbers go both ways.
func numbered(t *testing.T, p *netns.Pod, outside *netns.Peer) {
	t.Helper()
	all := []*sequence{newSequence(t, outside.NS, p.NS, p.V4), newSequence(t, p.NS, outside.NS, outside.V4), newSequence(t, p.NS, p.Node.NS, p.Node.Uplinks[0].V6)}
	var log []string
	for range 2 {
		for _, s := range settings {
			before := all[0].sent.Load()
			setLimits(t, p, s.name)
			log = append(log, fmt.Sprintf("%s from %d on", s.name, before))
			if err := netns.Poll(func() error { return all[0].further(before + 30) }); err != nil {
				t.Error(err)
			}
		}
	}
	for _, s := range all {
		s.stop()
		if netns.Emulated() { // the kernel drops what comes while a device's first qdisc is put there
			s.spared = 50
		}
		if err := netns.Poll(s.whole); err != nil {
			s.close()
			t.Errorf("%v: without %v; changed to %v", err, s.missing(), log)
		}
	}
}

// streams wants bulk connections to go on after each change.
func streams(t *testing.T, p *netns.Pod, outside *netns.Peer) {
	t.Helper()
	for direction, s := range bothWays(p, outside) {
		s.Proto, s.Flows = "tcp", 3
		r, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range settings {
			lost := drops(t, p.Node, "egress_limit")
			setLimits(t, p, to.name)
			before := r.Total()
			err := netns.Poll(func() error {
				if now := r.Total() - before; now < 200e3 {
					return fmt.Errorf("%s, set to %s: %d bytes came since", direction, to.name, now)
				}
				return nil
			})
			if now := drops(t, p.Node, "egress_limit"); now != lost {
				err = errors.Join(err, fmt.Errorf("%s, set to %s: the node dropped %d packets", direction, to.name, now-lost))
			}
			if err != nil {
				t.Errorf("%v\n%s%s", err, p.MustRun(t, "", "tc", "-s", "qdisc", "show", "dev", p.IfName),
					p.Node.MustRun(t, "", "tc", "-s", "qdisc", "show", "dev", p.Host.Name))
			}
		}
		if err := r.Err(); err != nil {
			t.Errorf("%s: %v", direction, err)
		}
		r.Stop()
	}
}
