// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// far says that the client is another node's pod, behind the uplink, as far as ifindex says so.
func (n *node) far(f family, ifindex int) {
	n.Helper()
	packet.Put(n, n.maps.Remotes, cidrKey(f.client, 24), bpf.DatapathRemote{
		Kind: remoteDirect, Endpoint: packet.Addr(f.gateway), Ifindex: uint32(ifindex)})
}

// farFlow is pod A calling it.
func (n *node) farFlow(f family) flow {
	in := between(f.a, f.client, syn)
	return flow{in: in, out: in, from: genA, action: toWire, reply: toPod}
}

// A pod's connection to another node's pod is carried both ways, and half open until the client
// has acknowledged the answer.
func TestPrivilegedFarFlow(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.far(f, n.uplink.Index)
		fl := n.farFlow(f)
		out := n.fromPodA(fl.in)
		n.toWire(out, fl.in.Hop())
		n.tables(out, fl.rows(), nil)
		fl.seen = n.seenAt(fl)
		back := fl.back(packet.SYN|packet.ACK, 7000, 1001)
		n.delivered(n.fromUplink(back), n.a, back.Hop())
		fl.state, fl.seq = answered, 7000
		third := fl.segment(packet.ACK, 1001, 7001)
		out = n.fromPodA(third)
		n.toWire(out, third.Hop())
		n.tables(out, nil, fl.rows())
		n.notDropped()
	})
}

// What begins none, or may not: it is the stack's, and nothing is remembered.
func TestPrivilegedFarNot(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		call := between(f.a, f.client, syn)
		spared := func(name string, p packet.Packet) {
			n.Helper()
			n.passed(n.fromPodA(p), p)
			n.tables(packet.Out{}, nil, nil)
			if n.Failed() {
				n.Fatal(name)
			}
		}
		n.far(f, 0)
		spared("a row without a device", call)
		n.far(f, n.b.Index)
		spared("another device than the FIB's", call)
		n.far(f, n.uplink.Index)
		for _, o := range openers[1:] {
			spared(o.name, call.As(o.Transport))
		}
		spared("at the end of its TTL", call.Lives(1))
		n.Conntrack(n, call)
		spared("known to conntrack", call)
		n.a.row.Flags |= bpf.DatapathPodFlagPOD_CHAINED
		n.putPod(f.a, n.a.row)
		other := call.From(f.a, 40001)
		spared("a chained pod's", other)
		n.notDropped()
	})
}

// Its own packets that only the stack knows a way for are left as they are there, the connection is
// not masqueraded, and nothing else is remembered. Those that netfilter has made: test/e2e, F5Remote.
func TestPrivilegedFarByStack(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, ports := range []uint16{0, 4} {
			n.clear()
			if ports > 0 {
				n.masks(ports)
			}
			n.far(f, n.uplink.Index)
			fl := n.farFlow(f)
			n.toWire(n.fromPodA(fl.in), fl.in.Hop())
			fl.seen = n.seenAt(fl)
			n.passed(n.toUplink(fl.in), fl.in)
			n.tables(packet.Out{}, fl.rows(), nil)
			n.notDropped()
		}
	})
}
