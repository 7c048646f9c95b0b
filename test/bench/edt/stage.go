// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

// A client, a node that routes, and a pod on it:
//
//	client c0 --- up0 node pod0 --- eth0 pod
//
// The way to the pod is limited where pod0 sends, the way from it where eth0 does.
var (
	clientAddr = netip.MustParseAddr("10.10.0.1")
	podAddr    = netip.MustParseAddr("10.20.0.2")
)

type stage struct {
	client, node, pod *netns.NS
	echoes            []*net.UDPConn // in the pod, in the client
}

func newStage() (s *stage, err error) {
	s = &stage{}
	for name, ns := range map[string]**netns.NS{"client": &s.client, "node": &s.node, "pod": &s.pod} {
		if *ns, err = netns.TryNew(name); err != nil {
			s.close()
			return nil, err
		}
	}
	if err = s.wire(); err == nil {
		err = s.serve()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) wire() error {
	for _, step := range []struct {
		ns    *netns.NS
		lines []string
	}{
		{s.node, []string{
			"link add up0 type veth peer name c0 netns " + s.client.Path(),
			"link add pod0 type veth peer name eth0 netns " + s.pod.Path(),
			"addr add 10.10.0.2/24 dev up0", "addr add 10.20.0.1/24 dev pod0", "link set up0 up", "link set pod0 up",
		}},
		{s.client, []string{"addr add 10.10.0.1/24 dev c0", "link set c0 up", "route add default via 10.10.0.2"}},
		{s.pod, []string{"addr add 10.20.0.2/24 dev eth0", "link set eth0 up", "route add default via 10.20.0.1"}},
	} {
		if err := node.IP(step.ns, step.lines...); err != nil {
			return err
		}
	}
	return s.node.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
}

// serve opens the echo services for the small flows.
func (s *stage) serve() error {
	for _, ns := range []*netns.NS{s.pod, s.client} {
		var c *net.UDPConn
		err := ns.Do(func() (err error) { c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: echoPort}); return err })
		if err != nil {
			return fmt.Errorf("open echo service in %s: %w", ns.Name, err)
		}
		s.echoes = append(s.echoes, c)
		go echo(c)
	}
	return nil
}

func (s *stage) close() {
	for _, c := range s.echoes {
		_ = c.Close()
	}
	for _, ns := range []*netns.NS{s.client, s.node, s.pod} {
		if ns != nil {
			ns.Close()
		}
	}
}

// ends of the limited direction, and the device that sends there.
func (s *stage) ends(fromPod bool) (from, to *netns.NS, dst netip.Addr, at *netns.NS, dev string) {
	if fromPod {
		return s.pod, s.client, clientAddr, s.pod, "eth0"
	}
	return s.client, s.pod, podAddr, s.node, "pod0"
}

// sizes has bulk leave its sender in segments of up to 64 KiB, or in packets of the MTU.
func (s *stage) sizes(c cell) error {
	segments := 1
	if c.gso {
		segments = 65535
	}
	for ns, dev := range map[*netns.NS]string{s.client: "c0", s.pod: "eth0"} {
		if err := node.IP(ns, fmt.Sprintf("link set %s gso_max_segs %d", dev, segments)); err != nil {
			return err
		}
	}
	return nil
}

// unlimited is what this machine carries when nothing holds it.
func (s *stage) unlimited(o options) (string, error) {
	var text string
	for _, c := range []cell{{gso: true}, {}} {
		if err := s.sizes(c); err != nil {
			return "", err
		}
		rate, err := netns.Stream{
			Proto: "tcp", From: s.client, To: s.pod, Dst: podAddr, Warmup: o.warmup, Window: time.Second,
		}.Rate()
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("%.0f Mbit/s (GSO %t) ", rate/1e6, c.gso)
	}
	return text, nil
}
