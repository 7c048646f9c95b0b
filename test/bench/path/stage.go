// SPDX-License-Identifier: Apache-2.0

package path

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/load"
	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/netns"
)

const (
	port     = node.Port // of every server
	hostPort = 8080      // that leads to it
)

// Others are the numbers of other hostPorts.
var Others = []int{0, 1000, 5000}

// path is a way from a client to a server.
type path struct {
	name  string
	kinds []load.Kind

	client   *netns.NS
	server   *load.Server
	to       netip.AddrPort
	programs func() (map[string]ran, error) // those whose time is to be measured
	out      bool                           // requests come from outside
}

var (
	onlyLatency = []load.Kind{load.RR, load.CRR}
	everything  = []load.Kind{load.RR, load.CRR, load.UDP, load.Stream}
)

// stage is everything that is measured, set up.
type stage struct {
	Options
	part *report.Part

	paths   []*path
	closers []func() error
}

func (s *stage) close() {
	s.Progress.Step(Name, 0, 0, "clean up")
	for _, c := range slices.Backward(s.closers) {
		if err := c(); err != nil {
			fmt.Fprintln(os.Stderr, "path: clean up:", err)
		}
	}
}

// build makes all paths, those of IPv6 last. Whatever cannot be made is noted and left out.
func (s *stage) build(ctx context.Context) error {
	for _, c := range []struct {
		name string
		make func() error
	}{{raw, s.raw}, {routed, s.routed}, {"floor", s.floor}} {
		s.Progress.Step(Name, 0, 0, "set up "+c.name)
		if err := c.make(); err != nil {
			s.part.Fail("%s: %v", c.name, err)
		}
	}
	for _, c := range []node.Chain{
		{Name: "ptp", Backend: "iptables", PTP: true, Masq: true},
		{Name: "culvert", Masq: true},
		{Name: "iptables", Backend: "iptables", Masq: true},
		{Name: "nft", Backend: "nft", Masq: true},
	} {
		if missing := c.Missing(); missing != "" {
			s.part.Fail("%s: no %s", c.Name, missing)
			continue
		}
		for _, others := range Others {
			if others > 0 && (c.PTP || s.Short && others < Others[len(Others)-1]) {
				continue
			}
			s.Progress.Step(Name, 0, 0, fmt.Sprintf("set up %s, %d other hostPorts", c.Name, others))
			if err := s.chain(ctx, c, others); err != nil && ctx.Err() == nil {
				s.part.Fail("%s, %d other hostPorts: %v", c.Name, others, err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(s.paths, func(a, b *path) int { return cmp.Or(family(a)-family(b), rank(a)-rank(b)) })
	return nil
}

// rank puts together what goes the same way: plain, from pod to pod, from outside, through a
// hostPort; among these, by number of others.
func rank(p *path) int {
	name := strings.TrimSuffix(p.name, IPv6)
	for i, n := range []string{raw, routed, floor, ours, ptp, bridge, floorIn, toPod} {
		if n == name {
			return i
		}
	}
	for i, others := range Others {
		if others > 0 && strings.HasSuffix(name, fmt.Sprintf(", %d others", others)) {
			return 100 + i
		}
	}
	return 100
}

func family(p *path) int { return p.to.Addr().BitLen() }

// chain makes a node with a pod that serves and has a hostPort, after `others` that have one.
func (s *stage) chain(ctx context.Context, c node.Chain, others int) error {
	outside, err := s.client("outside of " + c.Name)
	if err != nil {
		return err
	}
	n, err := node.New(c, s.Bin, outside)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, n.Close)
	if err := n.Fill(ctx, others); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	pod, err := n.AddPod(ctx, node.Ports(hostPort, 1, "tcp", "udp"))
	if err != nil {
		return err
	}
	server, err := s.serve(pod.NS)
	if err != nil {
		return err
	}
	p := path{kinds: onlyLatency, client: outside, server: server, out: true}
	if others == 0 {
		p.kinds = everything
		if c.Backend == "" {
			p.programs = pinned(n.Pins)
		}
	}
	if !c.PTP {
		s.add(p, HostPort(c.Name, others), node.Addr, node.Addr6, hostPort)
	}
	if others > 0 {
		return nil
	}
	if c.Backend == "" {
		if err := node.IP(outside, fmt.Sprintf("route add 10.244.0.0/16 via %s", node.Addr), fmt.Sprintf("route add fd00:244::/64 via %s", node.Addr6)); err != nil {
			return err
		}
		s.add(p, toPod, pod.V4, pod.V6, port)
	}
	return s.podToPod(ctx, n, p, pod)
}

// podToPod adds the path from another pod. A bridge is the same whoever maps ports on it.
func (s *stage) podToPod(ctx context.Context, n *node.Node, p path, server *node.Pod) error {
	if n.Chain.Backend == "nft" {
		return nil
	}
	other, err := n.AddPod(ctx, nil)
	if err != nil {
		return err
	}
	if err := manyPorts(other.NS); err != nil {
		return err
	}
	p.client, p.out = other.NS, false
	name := bridge
	switch {
	case n.Chain.PTP:
		name = ptp
	case n.Chain.Backend == "":
		name = ours
	}
	s.add(p, name, server.V4, server.V6, port)
	return nil
}

// add has a path for each family.
func (s *stage) add(p path, name string, v4, six netip.Addr, port uint16) {
	p.name, p.to = name, netip.AddrPortFrom(v4, port)
	s.paths = append(s.paths, &p)
	if !s.Short {
		q := p
		q.name, q.to = name+IPv6, netip.AddrPortFrom(six, port)
		s.paths = append(s.paths, &q)
	}
}

func (s *stage) serve(ns *netns.NS) (*load.Server, error) {
	server, err := load.Serve(ns, port, s.CPU)
	if err == nil {
		s.closers = append(s.closers, server.Close)
	}
	return server, err
}

// space makes a namespace that is closed at the end.
func (s *stage) space(name string) (*netns.NS, error) {
	ns, err := netns.TryNew(name)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { ns.Close(); return nil })
	return ns, nil
}

func (s *stage) client(name string) (*netns.NS, error) {
	ns, err := s.space(name)
	if err != nil {
		return nil, err
	}
	return ns, manyPorts(ns)
}

// manyPorts: a client that connects 10,000 times a second must not run out of ports,
// nor have to search for one.
func manyPorts(ns *netns.NS) error {
	return ns.Do(func() error {
		for name, value := range map[string]string{"ip_local_port_range": "1024 65535", "tcp_tw_reuse": "1"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// HostPort is the path through one, of a chain (culvert, iptables, nft), beside others.
func HostPort(chain string, others int) string {
	name := "hostPort, portmap " + chain
	if chain == "culvert" {
		name = "hostPort, culvert"
	}
	if others > 0 {
		name += fmt.Sprintf(", %d others", others)
	}
	return name
}
