// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/load"
	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

const (
	port     = 80    // of every server
	hostPort = 8080  // that leads to it
	fillPort = 20000 // the first of the others
)

// fills are the numbers of other hostPorts.
var fills = []int{0, 1000, 5000}

// path is a way from a client to a server.
type path struct {
	name  string
	kinds []load.Kind

	client *netns.NS
	server *load.Server
	to     netip.AddrPort
	node   *node.Node // of culvert, if its programs' time is to be measured
	out    bool       // and requests come from outside
}

// stage is everything that is measured, set up.
type stage struct {
	options
	out io.Writer

	paths   []*path
	closers []func() error
}

func (s *stage) close() {
	for _, c := range slices.Backward(s.closers) {
		if err := c(); err != nil {
			fmt.Fprintln(os.Stderr, "path: clean up:", err)
		}
	}
}

func (s *stage) build(ctx context.Context) error {
	if err := s.raw(); err != nil {
		return fmt.Errorf("raw veth pair: %w", err)
	}
	for _, c := range []node.Chain{
		{Name: "culvert", Masq: true},
		{Name: "iptables", Backend: "iptables", Masq: true},
		{Name: "nft", Backend: "nft", Masq: true},
	} {
		if missing := c.Missing(); missing != "" {
			fmt.Fprintf(s.out, "portmap (%s) is left out: no %s\n", c.Name, missing)
			continue
		}
		for _, others := range fills {
			if err := s.chain(ctx, c, others); err != nil {
				return fmt.Errorf("%s, %d other hostPorts: %w", c.Name, others, err)
			}
		}
	}
	return nil
}

var (
	onlyLatency = []load.Kind{load.RR, load.CRR}
	everything  = []load.Kind{load.RR, load.CRR, load.UDP, load.Stream}
)

func (s *stage) raw() error {
	client, err := s.client("raw client")
	if err != nil {
		return err
	}
	server, err := netns.TryNew("raw server")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { server.Close(); return nil })
	if err := node.IP(server, "link add veth0 type veth peer name veth0 netns "+client.Path(),
		"addr add 10.20.0.2/24 dev veth0", "link set veth0 up"); err != nil {
		return err
	}
	if err := node.IP(client, "addr add 10.20.0.1/24 dev veth0", "link set veth0 up"); err != nil {
		return err
	}
	return s.add(&path{name: raw, kinds: everything, client: client, to: netip.MustParseAddrPort("10.20.0.2:80")}, server)
}

// chain makes a node with a pod that serves and has a hostPort, after `others` that have one.
func (s *stage) chain(ctx context.Context, c node.Chain, others int) error {
	outside, err := s.client("outside of " + c.Name)
	if err != nil {
		return err
	}
	n, err := node.New(c, s.bin, outside)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, n.Close)
	if err := fill(ctx, n, others); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	server, err := addPod(ctx, n, ports(hostPort, 1, "tcp", "udp"))
	if err != nil {
		return err
	}
	p := &path{name: hostPortName(c.Name, others), kinds: onlyLatency, client: outside, to: netip.AddrPortFrom(node.Addr, hostPort), out: true}
	if others > 0 {
		return s.add(p, server.NS)
	}
	p.kinds = everything
	if c.Backend == "" {
		p.node = n
	}
	if err := s.add(p, server.NS); err != nil {
		return err
	}
	// A bridge is the same whoever maps ports on it.
	if c.Backend == "nft" {
		return nil
	}
	other, err := addPod(ctx, n, nil)
	if err != nil {
		return err
	}
	if err := manyPorts(other.NS); err != nil {
		return err
	}
	direct := &path{name: podPodName(c), kinds: everything, client: other.NS, server: p.server, node: p.node,
		to: netip.AddrPortFrom(server.V4, port)}
	s.paths = append(s.paths, direct)
	return nil
}

func (s *stage) add(p *path, server *netns.NS) (err error) {
	if p.server, err = load.Serve(server, port, s.cpu); err != nil {
		return err
	}
	s.closers = append(s.closers, p.server.Close)
	s.paths = append(s.paths, p)
	return nil
}

func (s *stage) client(name string) (*netns.NS, error) {
	ns, err := netns.TryNew(name)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { ns.Close(); return nil })
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

func addPod(ctx context.Context, n *node.Node, mappings []node.PortMapping) (*node.Pod, error) {
	p, err := n.NewPod(map[string]any{"portMappings": mappings})
	if err != nil {
		return nil, err
	}
	return p, p.Add(ctx)
}

// ports are so many hostPorts from first on, for each protocol.
func ports(first, count int, protocols ...string) []node.PortMapping {
	var m []node.PortMapping
	for i := range count {
		for _, p := range protocols {
			m = append(m, node.PortMapping{HostPort: first + i, ContainerPort: port, Protocol: p})
		}
	}
	return m
}

const raw = "raw veth pair"

func hostPortName(chain string, others int) string {
	name := "hostPort, " + strings.Replace("portmap "+chain, "portmap culvert", "culvert", 1)
	if others > 0 {
		name += fmt.Sprintf(", %d others", others)
	}
	return name
}

func podPodName(c node.Chain) string {
	if c.Backend == "" {
		return "pod to pod, culvert"
	}
	return "pod to pod, bridge"
}
