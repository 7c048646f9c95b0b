// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

// Ports of a limited pod. hostPorts are counted from firstHostPort on, two a pod.
const (
	bulkPort      = 5001
	echoPort      = 5002
	requestPort   = 5003
	firstHostPort = 20000
)

// direction is as the pod sees it: ingress is to the pod.
type direction string

const (
	ingress direction = "ingress"
	egress  direction = "egress"
)

var directions = []direction{ingress, egress}

// Bursts that runtimes ask for with every limit, in bit.
const (
	containerd = 1<<32 - 1
	crio       = 8 * (1<<31 - 1)
)

var culvert = node.Chain{Name: "culvert"}

// reference is the chain of the reference plugins.
var reference = node.Chain{Name: "reference", Backend: "nft"}

// bed is a node of one chain with a neighbour outside and a pod without limits.
type bed struct {
	*node.Node
	outside *netns.NS
	peer    *node.Pod

	hostPorts int      // taken
	closers   []func() // of servers
}

// pod is one with a limit in one direction.
type pod struct {
	*node.Pod
	bed  *bed
	dir  direction
	rate uint64

	hostPort uint16 // leads to bulkPort, the next one to echoPort
}

func newBed(ctx context.Context, c node.Chain, bin node.Binaries) (*bed, error) {
	if missing := c.Missing(); missing != "" {
		return nil, fmt.Errorf("%s: no %s", c.Name, missing)
	}
	b := &bed{}
	var err error
	if b.outside, err = netns.TryNew("outside of " + c.Name); err != nil {
		return nil, err
	}
	if b.Node, err = node.New(c, bin, b.outside); err != nil {
		b.outside.Close()
		return nil, err
	}
	if err = node.IP(b.outside, fmt.Sprintf("route add 10.244.0.0/16 via %s", node.Addr)); err == nil {
		b.peer, err = b.NewPod(nil)
	}
	if err == nil {
		err = b.peer.Add(ctx)
	}
	if err == nil {
		err = b.serve(b.outside, b.NS, b.peer.NS)
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return b, nil
}

// serve answers probes and requests in namespaces.
func (b *bed) serve(spaces ...*netns.NS) error {
	for _, ns := range spaces {
		for _, serve := range []func(*netns.NS) (func(), error){serveEcho, serveRequests} {
			closer, err := serve(ns)
			if err != nil {
				return err
			}
			b.closers = append(b.closers, closer)
		}
	}
	return nil
}

func (b *bed) close() {
	for _, c := range b.closers {
		c()
	}
	_ = b.Close()
	b.outside.Close()
}

// limited makes a pod. Rate is in bit/s, burst in bit; 0 is none.
func (b *bed) limited(ctx context.Context, dir direction, rate, burst uint64) (*pod, error) {
	at := firstHostPort + b.hostPorts
	b.hostPorts += 2
	limit := map[string]any{string(dir) + "Rate": rate}
	if burst > 0 {
		limit[string(dir)+"Burst"] = burst
	}
	p, err := b.NewPod(map[string]any{"bandwidth": limit, "portMappings": []node.PortMapping{
		{HostPort: at, ContainerPort: bulkPort, Protocol: "tcp"},
		{HostPort: at, ContainerPort: bulkPort, Protocol: "udp"},
		{HostPort: at + 1, ContainerPort: echoPort, Protocol: "udp"},
	}})
	if err != nil {
		return nil, err
	}
	if err := p.Add(ctx); err != nil {
		return nil, fmt.Errorf("%s %s: %w", dir, name(rate), err)
	}
	if err := b.serve(p.NS); err != nil {
		return nil, err
	}
	return &pod{Pod: p, bed: b, dir: dir, rate: rate, hostPort: uint16(at)}, nil
}

// peer is whom a limited pod talks to.
type peer string

const (
	outside  peer = "outside"
	nextPod  peer = "pod"
	theHost  peer = "host"
	hostPort peer = "hostPort"
)

var peers = []peer{outside, nextPod, theHost, hostPort}

// way is how data get to the pod or from it: who calls whom, and by what address.
type way struct {
	from, to *netns.NS
	dst      netip.Addr
	bulk     netip.AddrPort // a hostPort, if it is valid
	echo     netip.AddrPort
	back     bool // data flow from who is called to who calls
}

// way: through a hostPort somebody outside calls, and the limit of egress is on the
// replies.
func (p *pod) way(to peer) way {
	other, addr := p.bed.outside, node.Gateway
	switch to {
	case nextPod:
		other, addr = p.bed.peer.NS, p.bed.peer.V4
	case theHost:
		other, addr = p.bed.NS, node.Addr
	case hostPort:
		return way{from: other, to: p.NS, dst: p.V4, back: p.dir == egress,
			bulk: netip.AddrPortFrom(node.Addr, p.hostPort), echo: netip.AddrPortFrom(node.Addr, p.hostPort+1)}
	}
	if p.dir == ingress {
		return way{from: other, to: p.NS, dst: p.V4, echo: netip.AddrPortFrom(p.V4, echoPort)}
	}
	return way{from: p.NS, to: other, dst: addr, echo: netip.AddrPortFrom(addr, echoPort)}
}

// stream is a load that way.
func (w way) stream(proto string, rate uint64, flows int) netns.Stream {
	s := netns.Stream{Proto: proto, From: w.from, To: w.to, Dst: w.dst, Via: w.bulk, Reverse: w.back, Flows: flows, Offer: rate * 3 / 2}
	if w.bulk.IsValid() {
		s.Port = bulkPort
	}
	return s
}

// name of a rate.
func name(rate uint64) string {
	if rate >= 1e9 {
		return fmt.Sprintf("%dG", rate/1e9)
	}
	return fmt.Sprintf("%dM", rate/1e6)
}
