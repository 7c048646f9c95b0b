// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// Where a redirect leads, by which helper, and that what passes an egress hook of ours
// is stamped.
func TestPrivilegedRedirectTargets(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.hostport(netip.Addr{}, 80, packet.ProtoUDP, 8080)
		far, near := directA(f, openers[2]), directA(f, openers[2])
		near.in.Src, near.out.Src = f.gateway, f.gateway
		local := flow{in: between(f.node, f.node2, syn), out: between(f.node, f.a, syn), to: genA, action: toPod, reply: toHost}
		limited := n.b.row
		limited.Flags |= bpf.DatapathPodFlagPOD_LIMIT_INGRESS
		n.putPod(f.b, limited)

		for _, c := range []struct {
			name  string
			put   *flow
			prog  string
			dev   packet.Device
			in    packet.Packet
			want  packet.Target
			stamp uint16
		}{
			{"pod", nil, "from_uplink", n.uplink, far.in, packet.Target{Ifindex: n.a.Index, Kind: packet.Peer}, 0},
			{"limited pod", nil, "from_pod", n.a.Device, between(f.a, f.b, udp),
				packet.Target{Ifindex: n.b.Index, Kind: packet.Egress}, redirectStamp},
			{"host to pod", nil, "from_host", packet.Device{}, between(f.node, f.node2, udp),
				packet.Target{Ifindex: n.a.Index, Kind: packet.Egress}, redirectStamp},
			{"pod to host", &local, "from_pod", n.a.Device, local.out.Reverse(), packet.Target{Ifindex: 1, Kind: packet.Ingress}, 0},
			{"gateway", &far, "from_pod", n.a.Device, far.in.Reverse(),
				packet.Target{Ifindex: n.uplink.Index, Kind: packet.Neighbour, NextHop: f.gateway}, redirectStamp},
			{"neighbour", &near, "from_pod", n.a.Device, near.in.Reverse(),
				packet.Target{Ifindex: n.uplink.Index, Kind: packet.Neighbour, NextHop: f.gateway}, redirectStamp},
		} {
			if c.put != nil {
				n.put(n.maps.Flows, *c.put, 0)
			}
			seen := n.Watch(n, packet.In{Program: c.prog, Device: c.dev.Index, Frame: c.in.Link(c.dev.MAC, c.dev.Peer).Frame()})
			if want := (packet.Seen{TcIndex: c.stamp, Redirect: c.want}); seen != want {
				n.Errorf("%s: got %+v, want %+v", c.name, seen, want)
			}
		}
		n.notDropped()
	})
}

// RFC 8950: an IPv4 route by way of an IPv6 neighbour.
func TestPrivilegedRedirectIPv4ViaIPv6(t *testing.T) {
	n := newNode(t)
	fl := directA(v4, openers[2])
	n.put(n.maps.Flows, fl, 0)
	n.Route(t, n.uplink.Index, netip.PrefixFrom(v4.client, 32), v6.gateway)
	in := packet.In{Program: "from_pod", Device: n.a.Index, Frame: fl.in.Reverse().Link(n.a.MAC, n.a.Peer).Frame()}
	want := packet.Target{Ifindex: n.uplink.Index, Kind: packet.Neighbour, NextHop: v6.gateway}
	if seen := n.Watch(t, in); seen.Redirect != want {
		t.Errorf("target: got %+v, want %+v", seen.Redirect, want)
	}
}

// N3: a frame to a MAC address that the veth had once is for us all the same.
func TestPrivilegedFormerMAC(t *testing.T) {
	n := newNode(t)
	p := between(v4.a, v4.client, udp).Link(packet.MAC{2, 0, 0, 0, 0, 1}, n.a.Peer)
	seen := n.Watch(t, packet.In{Program: "from_pod", Device: n.a.Index, Frame: p.Frame()})
	if seen.PktType != 0 {
		t.Errorf("pkt_type: got %d, want PACKET_HOST", seen.PktType)
	}
}
