// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

const (
	checked    = bpf.DatapathPodFlagPOD_SOURCE_CHECK
	masquerade = bpf.DatapathPodFlagPOD_MASQUERADE
)

// stage is a node that a model looks at too: both have the same tables.
type stage struct {
	*node
	*model.Node
	runner   *packet.Runner
	pods     []stagePod
	began    uint64 // when the rows were dealt
	complete bool   // the kernel can feign CHECKSUM_COMPLETE
}

type stagePod struct {
	packet.Device
	addrs [2]netip.Addr // IPv4, IPv6
}

// stagePods: two that are masqueraded, one of them with an ingress limit; a second
// interface of the first one's container; and a chained one with a small MTU, whose
// sources nobody checks.
var stagePods = []struct {
	name       string
	v4, v6     string
	generation uint64
	netns      uint32
	mtu        uint32
	flags      bpf.DatapathPodFlag
}{
	{"a", "10.1.0.2", "fd00:1::2", genA, genA, podMTU, checked | masquerade},
	{"b", "10.1.0.3", "fd00:1::3", genB, genB, podMTU, checked | masquerade | bpf.DatapathPodFlagPOD_LIMIT_INGRESS},
	{"c", "10.1.0.4", "fd00:1::4", 3003, genA, podMTU, checked},
	{"d", "10.1.0.5", "fd00:1::5", 4004, 4004, 600, masquerade | bpf.DatapathPodFlagPOD_CHAINED},
}

const uplinkMTU = 1500

func newStage(tb testing.TB) *stage {
	tb.Helper()
	n := newNode(tb)
	s := &stage{node: n, runner: n.NewRunner(tb), Node: &model.Node{
		Pods: map[model.Addr]model.Pod{}, Links: map[int]model.Link{}, Hostports: map[model.Service]model.Hostport{},
		Timeouts: model.Timeouts{
			SYN: timeouts[bpf.DatapathVarTcpSynTimeoutNs], TCP: timeouts[bpf.DatapathVarTcpTimeoutNs],
			Closed: timeouts[bpf.DatapathVarTcpClosedTimeoutNs], MaskedClosed: timeouts[bpf.DatapathVarMasqueradeClosedTimeoutNs],
			UDP:        timeouts[bpf.DatapathVarUdpTimeoutNs],
			Unanswered: timeouts[bpf.DatapathVarUdpUnansweredTimeoutNs], Other: timeouts[bpf.DatapathVarOtherTimeoutNs],
		},
		Local: local, Route: route, Uplink: uplinkAddr(n), Excluded: isIn(excludedRanges), Nonmasq: isIn(nonmasqRanges), Remote: remoteOf(n.Object.Conntrack),
		Pool: poolRanges, Drops: map[model.Drop]model.Count{},
	}}
	s.Chosen = s.chosen
	for i, p := range stagePods {
		dev := []packet.Device{n.a.Device, n.b.Device, {}, {}}[i]
		if dev.Name == "" {
			dev = n.Veth(tb, p.name, podMTU) // IPv6 has no MTU of 600
			for _, a := range []netip.Addr{ip(p.v4), ip(p.v6)} {
				n.Route(tb, dev.Index, netip.PrefixFrom(a, a.BitLen()), netip.Addr{})
			}
		}
		s.addPod(dev, i)
	}
	for _, f := range families { // else no answer of the FIB is kept
		n.Neighbour(tb, n.uplink, f.gateway, packet.MAC{2, 0, 0, 0, 0, 9})
	}
	s.addHostports()
	s.addRanges()
	_, err := n.TryRun(tb, packet.In{Program: "to_pod", Device: n.a.Index, Flags: packet.VerifyChecksumComplete,
		Frame: between(v4.client, v4.a, echo).Frame()})
	s.complete = err == nil
	return s
}

func (s *stage) addPod(dev packet.Device, i int) {
	p := stagePods[i]
	at := stagePod{dev, [2]netip.Addr{ip(p.v4), ip(p.v6)}}
	s.pods = append(s.pods, at)
	row := bpf.DatapathPod{Generation: p.generation, Ifindex: uint32(dev.Index), Netns: p.netns, Mtu: p.mtu,
		Flags: p.flags, Mac: dev.Peer, HostMac: dev.MAC}
	iface := bpf.DatapathIface{Generation: p.generation, Netns: uint64(p.netns), Mtu: p.mtu}
	for j, a := range at.addrs {
		s.putPod(a, row)
		iface.Addrs[j] = packet.Addr(a)
		s.Pods[model.AddrOf(a)] = model.Pod{Generation: p.generation, Device: dev.Index, Netns: p.netns, MTU: int(p.mtu),
			MAC: dev.Peer, HostMAC: dev.MAC, Checked: p.flags&checked != 0, Chained: p.flags&bpf.DatapathPodFlagPOD_CHAINED != 0, Masquerade: p.flags&masquerade != 0}
	}
	packet.Put(s, s.maps.Ifaces, bpf.DatapathIfaceKey{Ifindex: uint32(dev.Index)}, iface)
	s.Links[dev.Index] = model.Link{Netns: p.netns, Addrs: []model.Addr{model.AddrOf(at.addrs[0]), model.AddrOf(at.addrs[1])}}
}

// addHostports: for each protocol one on any address, and what differs from that.
func (s *stage) addHostports() {
	add := func(at netip.Addr, port uint16, proto uint8, pod int, podPort uint16, change func(*bpf.DatapathHostport)) {
		p := stagePods[pod]
		row := bpf.DatapathHostport{Pod4: packet.Addr(ip(p.v4)), Pod6: packet.Addr(ip(p.v6)), Generation: p.generation,
			Ifindex: uint32(s.pods[pod].Index), Port: podPort, Flags: bpf.DatapathHostportFlagHOSTPORT_LOOPBACK}
		if change != nil {
			change(&row)
		}
		s.putHostport(at, port, proto, row)
		key := model.Service{Port: port, Proto: proto}
		if at.IsValid() {
			key.Addr = model.AddrOf(at)
		}
		s.Hostports[key] = model.Hostport{Pod4: row.Pod4.Ip, Pod6: row.Pod6.Ip, Generation: row.Generation,
			Port: row.Port, Loopback: row.Flags&bpf.DatapathHostportFlagHOSTPORT_LOOPBACK != 0}
	}
	for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP} {
		add(anyAddr, 80, proto, 0, 8080, nil)
		add(v4.node2, 80, proto, 1, 80, nil)
		add(v6.node2, 80, proto, 1, 80, nil)
		add(anyAddr, 443, proto, 3, 443, nil)
		add(anyAddr, 8082, proto, 0, 80, func(h *bpf.DatapathHostport) { h.Flags = 0 })
		add(anyAddr, 9000, proto, 1, 9000, func(h *bpf.DatapathHostport) { h.Pod6 = bpf.DatapathAddr{} })
		add(anyAddr, 9001, proto, 1, 9001, func(h *bpf.DatapathHostport) { h.Generation-- })
		add(anyAddr, 33000, proto, 1, 80, nil)        // in the pool
		add(ip("203.0.113.9"), 80, proto, 1, 80, nil) // not the node's
	}
	add(anyAddr, 53, packet.ProtoUDP, 1, 53, nil)
	add(anyAddr, 80, packet.ProtoSCTP, 0, 80, nil)
}

// What config, nonmasq and excluded hold.
var (
	formerAddrs    = []netip.Addr{v4.client2, v6.client2}
	poolRanges     = []model.Range{{First: 32768, Last: 33767}, {First: 40000, Last: 40000}}
	nonmasqRanges  = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.PrefixFrom(v4.client2, 32), netip.PrefixFrom(v6.client2, 128)}
	excludedRanges = []netip.Prefix{netip.PrefixFrom(v6.node2, 128)}
)

// What remotes has: ranges in a tunnel, one address in each that is not, and one that only the
// stack has the way to.
var (
	tunnelRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.64/28"), netip.MustParsePrefix("2001:db8:f::40/124")}
	directRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.67/32"), netip.MustParsePrefix("2001:db8:f::43/128")}
	slowRanges   = []netip.Prefix{netip.MustParsePrefix("198.51.100.69/32"), netip.MustParsePrefix("2001:db8:f::45/128")}
)

// remotes are an address of each kind.
func remotes(f family) []netip.Addr {
	return []netip.Addr{tunnelRanges[side(f)].Addr().Next(), directRanges[side(f)].Addr(), slowRanges[side(f)].Addr()}
}

func remoteOf(conntrack bool) func(model.Addr) model.Remote {
	return func(a model.Addr) model.Remote {
		if isIn(slowRanges)(a) {
			return model.Remote{Is: true}
		}
		if isIn(directRanges)(a) {
			return model.Remote{Is: true, Fast: conntrack}
		}
		in := isIn(tunnelRanges)(a)
		return model.Remote{Is: in, Tunnel: in, Fast: in && conntrack}
	}
}

func isIn(ranges []netip.Prefix) func(model.Addr) bool {
	return func(a model.Addr) bool {
		for _, r := range ranges {
			if r.Contains(netip.AddrFrom16(a).Unmap()) {
				return true
			}
		}
		return false
	}
}

func (s *stage) addRanges() {
	conf := bpf.DatapathNodeConfig{}
	for i, r := range poolRanges {
		conf.Ports[i] = bpf.DatapathPortRange{First: r.First, Last: r.Last}
		conf.PortCount += uint32(r.Last-r.First) + 1
	}
	conf.Uplinks[0] = bpf.DatapathUplink{Ifindex: uint32(s.uplink.Index), Addr4: packet.Addr(s.address(v4)), Addr6: packet.Addr(s.address(v6))}
	// It stands for the tunnel's device too, with the range that its node had before.
	conf.Uplinks[1] = bpf.DatapathUplink{Ifindex: uint32(s.uplink.Index), Addr4: packet.Addr(formerAddrs[0]), Addr6: packet.Addr(formerAddrs[1])}
	for _, u := range conf.Uplinks[:2] {
		s.Tunnel = append(s.Tunnel, u.Addr4.Ip, u.Addr6.Ip)
	}
	packet.Put(s, s.maps.Config, uint32(0), conf)
	far := func(kind bpf.DatapathRemoteKind, ifindex int, ranges []netip.Prefix) {
		for _, r := range ranges {
			packet.Put(s, s.maps.Remotes, prefixKey(r), bpf.DatapathRemote{Kind: kind, Vni: 1, Endpoint: packet.Addr(v4.gateway), Ifindex: uint32(ifindex)})
		}
	}
	far(remoteTunnel, s.uplink.Index, tunnelRanges) // the FIB has but one way
	far(remoteDirect, s.uplink.Index, directRanges)
	far(remoteDirect, 0, slowRanges)
	for m, ranges := range map[*ebpf.Map][]netip.Prefix{s.maps.Nonmasq: nonmasqRanges, s.maps.Excluded: excludedRanges} {
		for _, r := range ranges {
			packet.Put(s, m, prefixKey(r), bpf.DatapathCidr{})
		}
	}
}

func prefixKey(r netip.Prefix) bpf.DatapathCidrKey {
	if r.Addr().Is4() {
		return cidrKey(r.Addr(), r.Bits())
	}
	return bpf.DatapathCidrKey{Prefix: 32 + uint32(r.Bits()), Version: 6, Addr: r.Addr().As16()}
}

// own: the addresses of the node, and those of its subnet that it listens to.
func own(a model.Addr) bool {
	for _, f := range families {
		switch netip.AddrFrom16(a).Unmap() {
		case f.node, f.node2, f.loopback, ip("192.0.2.255"), ip("2001:db8:1::"): // broadcast, anycast
			return true
		}
	}
	return false
}

// local is the FIB's word. It forwards nothing that has a link-local or multicast IPv6
// address at either end (bpf_ipv6_fib_lookup), and that looks like the node's own.
func local(src, dst model.Addr) bool { return own(dst) || ofLink(src) || ofLink(dst) }

func ofLink(a model.Addr) bool {
	ip := netip.AddrFrom16(a)
	return !ip.Is4In6() && (ip.IsLinkLocalUnicast() || ip.IsMulticast())
}

// uplinkAddr is what the node itself sends from.
func uplinkAddr(n *node) func(model.Addr) (model.Addr, bool) {
	addrs := map[bool]model.Addr{true: model.AddrOf(n.address(v4)), false: model.AddrOf(n.address(v6))}
	return func(dst model.Addr) (model.Addr, bool) { return addrs[netip.AddrFrom16(dst).Is4In6()], true }
}

// route: the MTU on the way to an address, 0 if there is none.
func route(src, dst model.Addr) int {
	if to := netip.AddrFrom16(dst).Unmap(); local(src, dst) || to.IsLoopback() {
		return 0
	}
	for _, p := range stagePods {
		if dst == model.AddrOf(ip(p.v4)) || dst == model.AddrOf(ip(p.v6)) {
			return podMTU
		}
	}
	return uplinkMTU
}

// chosen is the client's port in the row that the datapath has just written.
func (s *stage) chosen(t model.Tuple) (uint16, bool) {
	var row bpf.DatapathFlow
	key := tupleRow(t)
	for _, m := range []*ebpf.Map{s.maps.Halfopen, s.maps.Flows} {
		if m.Lookup(&key, &row) == nil {
			return row.Sport, true
		}
	}
	return 0, false
}

// clockSlack is how far the programs' clock may be from packet.Now.
const clockSlack = uint64(20 * time.Millisecond)

// roundTime is how long the rows of a round may be taken for as old as they were.
const roundTime = 900 * time.Millisecond
