// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const (
	fromTunnelHook = bpf.DatapathHookHOOK_FROM_TUNNEL
	toTunnelHook   = bpf.DatapathHookHOOK_TO_TUNNEL
	dropTunnel     = bpf.DatapathDropReasonDROP_TUNNEL_SOURCE
	dropNoRemote   = bpf.DatapathDropReasonDROP_NO_REMOTE
	remoteDirect   = bpf.DatapathRemoteKindREMOTE_DIRECT
	remoteTunnel   = bpf.DatapathRemoteKindREMOTE_TUNNEL
	remoteNode     = bpf.DatapathRemoteKindREMOTE_NODE
)

// remote says that a range around an address, so many bits long for IPv4, is another node's.
func (n *node) remote(a netip.Addr, bits int, kind bpf.DatapathRemoteKind, endpoint netip.Addr) {
	n.Helper()
	packet.Put(n, n.maps.Remotes, cidrKey(a, bits), bpf.DatapathRemote{Kind: kind, Vni: 1, Endpoint: packet.Addr(endpoint)})
}

// cidrKey is a range's, so many bits long for IPv4 and twice that for IPv6.
func cidrKey(a netip.Addr, bits int) bpf.DatapathCidrKey {
	if a.Is6() {
		return bpf.DatapathCidrKey{Prefix: uint32(32 + 2*bits), Version: 6, Addr: a.As16()}
	}
	return bpf.DatapathCidrKey{Prefix: uint32(32 + 96 + bits), Version: 4, Addr: a.As16()}
}

// The uplink stands for the tunnel device: its programs do not ask which one they are on. A frame
// there has the device's address at both ends.

func (n *node) fromTunnel(p packet.Packet) packet.Out {
	n.Helper()
	return n.run("from_tunnel", n.uplink, p.Link(n.uplink.MAC, n.uplink.Peer).Frame())
}

func (n *node) toTunnel(p packet.Packet) packet.Out {
	n.Helper()
	return n.run("to_tunnel", n.uplink, p.Link(n.uplink.MAC, n.uplink.MAC).Frame())
}

// tunneled: the device gets the packet, between the addresses that all nodes have.
func (n *node) tunneled(out packet.Out, want packet.Packet) {
	n.Helper()
	from := n.uplink.MAC
	from[5] ^= 1
	n.verdict(out, packet.Unspec)
	n.same(out.Frame, want.Link(n.uplink.MAC, from).Frame())
	if err := packet.Verify(out.Frame); err != nil {
		n.Error(err)
	}
}

// What the stack sends to another node's pod goes there as it is, a masqueraded pod's too, over
// either family, and whatever it has for its source while the tunnel's own is not known; the
// narrowest range counts.
func TestPrivilegedToTunnel(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(4)
		packet.Put(n, n.maps.Config, uint32(0), bpf.DatapathNodeConfig{})
		for _, endpoint := range []netip.Addr{v4.gateway, v6.gateway} {
			n.remote(f.client, 24, remoteTunnel, endpoint)
			for _, o := range openers {
				for _, src := range []netip.Addr{f.a, f.node, f.client2} {
					p := between(src, f.client, o.Transport)
					n.tunneled(n.toTunnel(p), p)
				}
			}
			for _, frame := range between(f.a, f.client, udp).With(datagram).Fragments(fragmentID, 1000) {
				copy(frame, n.uplink.MAC[:])
				copy(frame[6:], n.uplink.MAC[:])
				n.verdict(n.run("to_tunnel", n.uplink, frame), packet.Unspec)
			}
		}
		n.notDropped()
		n.tables(packet.Out{}, nil, nil)
		alone := cidrKey(f.client, 32)
		alone.Prefix = 32 + 128
		packet.Put(n, n.maps.Remotes, alone, bpf.DatapathRemote{Kind: remoteDirect, Endpoint: packet.Addr(f.gateway)})
		n.dropped(n.toTunnel(between(f.a, f.client, udp)), n.uplink.Index, toTunnelHook, dropNoRemote)
		p := between(f.a, f.client2, udp)
		n.tunneled(n.toTunnel(p), p)
	})
}

// What is routed there and has no row, or one of another kind, is dropped by name; multicast and
// what is no IP are left to the device.
func TestPrivilegedToTunnelNowhere(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		call := between(f.a, f.client, udp)
		for _, kind := range []bpf.DatapathRemoteKind{0, remoteDirect, remoteNode} {
			if kind != 0 {
				n.remote(f.client, 24, kind, f.gateway)
			}
			n.Object.ClearDrops(n)
			n.dropped(n.toTunnel(call), n.uplink.Index, toTunnelHook, dropNoRemote)
		}
		n.Object.ClearDrops(n)
		group := ip("224.0.0.251")
		if f.node.Is6() {
			group = ip("ff02::16")
		}
		p := call.To(group, 53)
		n.same(n.toTunnel(p).Frame, p.Link(n.uplink.MAC, n.uplink.MAC).Frame())
		frame := call.Link(n.uplink.MAC, n.uplink.MAC).Frame()
		frame[12], frame[13] = 0x08, 0x06 // ARP
		n.same(n.run("to_tunnel", n.uplink, frame).Frame, frame)
		n.notDropped()
	})
}

// An answer that only the stack knows the way for says what the fast path's would have said, and
// the node's own calls from a hostPort's number are answered to the node.
func TestPrivilegedToTunnelLate(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.remote(f.client, 24, remoteTunnel, f.gateway)
		fl := n.hostportFlow(f, udp)
		n.there(fl, fl.in)
		answer := fl.out.Reverse()
		n.tunneled(n.toTunnel(answer), fl.in.Reverse())
		n.clear()
		n.remote(f.client, 24, remoteTunnel, f.gateway)
		n.hostport(netip.Addr{}, 9000, packet.ProtoUDP, 80)
		own := between(f.node, f.client, packet.UDP{Src: 9000, Dst: 53})
		n.tunneled(n.toTunnel(own), own)
		back := own.Reverse()
		n.passed(n.fromUplink(back), back)
		n.notDropped()
	})
}

// Nothing comes by the tunnel that has no tunnel around it, whatever it says, and whoever has the
// source; test/e2e has those that come from a node.
func TestPrivilegedFromTunnelForged(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.remote(f.client, 24, remoteTunnel, f.gateway)
		n.hostport(netip.Addr{}, 80, packet.ProtoUDP, 8080)
		for _, src := range []netip.Addr{f.client, f.a, f.node, f.gateway, f.loopback} {
			for _, dst := range []netip.Addr{f.a, f.node, f.loopback} {
				n.Object.ClearDrops(n)
				n.dropped(n.fromTunnel(between(src, dst, udp)), n.uplink.Index, fromTunnelHook, dropTunnel)
			}
		}
		for _, kind := range []uint16{0x0806, 0x8100, 0x88a8, 0} {
			frame := between(f.client, f.a, udp).Link(n.uplink.MAC, n.uplink.Peer).Frame()
			frame[12], frame[13] = byte(kind>>8), byte(kind)
			n.Object.ClearDrops(n)
			n.dropped(n.run("from_tunnel", n.uplink, frame), n.uplink.Index, fromTunnelHook, dropTunnel)
		}
	})
}

// F1: what is another node's is not masqueraded, whatever the way to it.
func TestPrivilegedF1Remote(t *testing.T) {
	for _, kind := range []bpf.DatapathRemoteKind{remoteDirect, remoteTunnel, remoteNode} {
		eachFamily(t, func(n *node, f family) {
			n.masks(4)
			n.remote(f.client, 24, kind, f.gateway)
			for _, o := range openers {
				p := between(f.a, f.client, o.Transport)
				n.passed(n.toUplink(p), p)
			}
			n.tables(packet.Out{}, nil, nil)
			n.notDropped()
		})
	}
}
