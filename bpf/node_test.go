// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// The tests share one loaded object and each has a node of its own: two pods, an
// uplink with a default route, forwarding on.
var object = sync.OnceValues(func() (*packet.Object, error) { return packet.Load(shortTimeouts) })

// Rows are aged by writing an earlier time into them, and a machine that has just been
// booted has no time that lies five days back.
var timeouts = map[string]time.Duration{
	bpf.DatapathVarUdpUnansweredTimeoutNs:    3 * time.Second,
	bpf.DatapathVarUdpTimeoutNs:              4 * time.Second,
	bpf.DatapathVarTcpSynTimeoutNs:           5 * time.Second,
	bpf.DatapathVarTcpClosedTimeoutNs:        6 * time.Second,
	bpf.DatapathVarMasqueradeClosedTimeoutNs: 7 * time.Second,
	bpf.DatapathVarOtherTimeoutNs:            7 * time.Second,
	bpf.DatapathVarTcpTimeoutNs:              8 * time.Second,
}

// The clock of a machine that has just booted does not reach back to when the tests' old
// rows were last used.
const oldestRow = 12 * time.Second

func TestMain(m *testing.M) {
	if young := oldestRow - time.Duration(packet.Now()); young > 0 {
		<-time.After(young)
	}
	os.Exit(m.Run())
}

func shortTimeouts(spec *ebpf.CollectionSpec) {
	for name, d := range timeouts {
		if err := spec.Variables[name].Set(uint64(d)); err != nil {
			panic(err)
		}
	}
}

const (
	podMTU = 1400
	genA   = 1001
	genB   = 2002
)

// family is the cast of a test in one address family.
type family struct {
	name             string
	node, node2      netip.Addr // the host's own
	a, b             netip.Addr // the pods'
	client, client2  netip.Addr // beyond the gateway
	gateway, linkEnd netip.Addr // the uplink's router; what a pod sees of a hidden caller
	loopback         netip.Addr
}

var families = []family{
	{"v4", ip("192.0.2.1"), ip("192.0.2.2"), ip("10.1.0.2"), ip("10.1.0.3"), ip("198.51.100.7"), ip("198.51.100.8"),
		ip("192.0.2.254"), ip("169.254.1.1"), ip("127.0.0.1")},
	{"v6", ip("2001:db8:1::1"), ip("2001:db8:1::2"), ip("fd00:1::2"), ip("fd00:1::3"), ip("2001:db8:f::7"),
		ip("2001:db8:f::8"), ip("2001:db8:1::fe"), ip("fe80::1"), ip("::1")},
}

// onLink is an address of the host as it stands on the uplink.
func (f family) onLink(a netip.Addr) string {
	if a.Is4() {
		return a.String() + "/24"
	}
	return a.String() + "/64"
}

var v4, v6 = families[0], families[1]

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

type pod struct {
	packet.Device
	row bpf.DatapathPod
}

// node is a packet.Node with its cast on stage.
type node struct {
	*packet.Node
	testing.TB
	maps   *bpf.DatapathMaps
	uplink packet.Device
	a, b   pod
	pins   string // see pinned
}

func newNode(t testing.TB) *node {
	t.Helper()
	o, err := object()
	if err != nil {
		t.Fatal(err)
	}
	return newNodeOf(t, o)
}

// newChurningNode has room for one half-open row, as an LRU that a flood churns.
func newChurningNode(t testing.TB) *node {
	t.Helper()
	o, err := packet.Load(func(spec *ebpf.CollectionSpec) {
		spec.Maps[bpf.DatapathMapHalfopen].Type = ebpf.Hash
		spec.Maps[bpf.DatapathMapHalfopen].MaxEntries = 1
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return newNodeOf(t, o)
}

func newNodeOf(t testing.TB, o *packet.Object) *node {
	t.Helper()
	n := &node{Node: packet.NewNode(t, o), TB: t, maps: &o.Maps}
	n.uplink = n.Veth(t, "uplink", 1500)
	for _, f := range families {
		all := netip.IPv6Unspecified()
		if f.node.Is4() {
			all = netip.IPv4Unspecified()
		}
		n.Address(t, n.uplink, f.onLink(f.node))
		n.Address(t, n.uplink, f.onLink(f.node2))
		n.Route(t, n.uplink.Index, netip.PrefixFrom(all, 0), f.gateway)
	}
	n.a.Device, n.b.Device = n.Veth(t, "a", podMTU), n.Veth(t, "b", podMTU)
	for _, f := range families {
		n.Route(n, n.a.Index, netip.PrefixFrom(f.a, f.a.BitLen()), netip.Addr{})
		n.Route(n, n.b.Index, netip.PrefixFrom(f.b, f.b.BitLen()), netip.Addr{})
	}
	n.a, n.b = n.rowsOfPods()
	return n
}

// clear empties the tables but for the pods.
func (n *node) clear() {
	n.Helper()
	n.Object.Clear(n)
	n.rowsOfPods()
}

// forget empties the tables of flows.
func (n *node) forget() {
	n.Helper()
	n.Object.ClearFlows(n)
}

func (n *node) rowsOfPods() (a, b pod) {
	n.Helper()
	return n.pod(n.a.Device, genA, v4.a, v6.a), n.pod(n.b.Device, genB, v4.b, v6.b)
}

// pod writes a pod's rows.
func (n *node) pod(dev packet.Device, generation uint64, addrs ...netip.Addr) pod {
	n.Helper()
	p := pod{Device: dev}
	p.row = bpf.DatapathPod{Generation: generation, Ifindex: uint32(p.Index), Netns: uint32(generation), Mtu: podMTU,
		Flags: bpf.DatapathPodFlagPOD_SOURCE_CHECK, Mac: p.Peer, HostMac: p.MAC}
	iface := bpf.DatapathIface{Generation: generation, Netns: generation, Mtu: podMTU}
	for i, a := range addrs {
		n.putPod(a, p.row)
		iface.Addrs[i] = packet.Addr(a)
	}
	packet.Put(n, n.maps.Ifaces, bpf.DatapathIfaceKey{Ifindex: uint32(p.Index)}, iface)
	return p
}

func (n *node) putPod(a netip.Addr, row bpf.DatapathPod) {
	n.Helper()
	packet.Put(n, n.maps.Pods, bpf.DatapathPodKey{Addr: packet.Addr(a)}, row)
}

// hostport opens a port of the node (a zero address: any) onto pod A's port.
func (n *node) hostport(a netip.Addr, port uint16, proto uint8, podPort uint16) {
	n.Helper()
	n.putHostport(a, port, proto, n.hostportRow(podPort))
}

func (n *node) hostportRow(podPort uint16) bpf.DatapathHostport {
	return bpf.DatapathHostport{Pod4: packet.Addr(v4.a), Pod6: packet.Addr(v6.a), Generation: genA,
		Ifindex: uint32(n.a.Index), Port: podPort, Flags: bpf.DatapathHostportFlagHOSTPORT_LOOPBACK}
}

func (n *node) putHostport(a netip.Addr, port uint16, proto uint8, row bpf.DatapathHostport) {
	n.Helper()
	key := bpf.DatapathHostportKey{Port: port, Proto: proto}
	if a.IsValid() {
		key.Addr = packet.Addr(a)
	}
	packet.Put(n, n.maps.Hostports, key, row)
}

// The hooks: a packet on its way, its link addresses filled in.

func (n *node) fromPod(p pod, pkt packet.Packet) packet.Out {
	n.Helper()
	return n.run("from_pod", p.Device, pkt.Link(p.MAC, p.Peer).Frame())
}

func (n *node) fromPodA(pkt packet.Packet) packet.Out {
	n.Helper()
	return n.fromPod(n.a, pkt)
}

func (n *node) fromPodB(pkt packet.Packet) packet.Out {
	n.Helper()
	return n.fromPod(n.b, pkt)
}

func (n *node) fromUplink(pkt packet.Packet) packet.Out {
	n.Helper()
	return n.run("from_uplink", n.uplink, pkt.Link(n.uplink.MAC, n.uplink.Peer).Frame())
}

func (n *node) toPod(p pod, pkt packet.Packet) packet.Out {
	n.Helper()
	return n.run("to_pod", p.Device, pkt.Link(p.Peer, p.MAC).Frame())
}

func (n *node) toUplink(pkt packet.Packet) packet.Out {
	n.Helper()
	return n.run("to_uplink", n.uplink, pkt.Link(n.uplink.Peer, n.uplink.MAC).Frame())
}

// fromHost runs a packet on lo, which a run takes by leaving the device out.
func (n *node) fromHost(pkt packet.Packet) packet.Out {
	n.Helper()
	return n.run("from_host", packet.Device{}, pkt.Link(packet.MAC{}, packet.MAC{}).Frame())
}

func (n *node) run(prog string, dev packet.Device, frame []byte) packet.Out {
	n.Helper()
	return n.Run(n, packet.In{Program: prog, Device: dev.Index, Frame: frame})
}

// between is a packet without link addresses, which the hook's function adds.
func between(src, dst netip.Addr, t packet.Transport) packet.Packet {
	return packet.Packet{Src: src, Dst: dst, Transport: t, Payload: []byte("odd")}
}

var (
	syn  = packet.TCP{Src: 40000, Dst: 80, Seq: 1000, Flags: packet.SYN, Options: []byte{2, 4, 5, 0x50}}
	ack  = packet.TCP{Src: 40000, Dst: 80, Seq: 1001, Ack: 7001, Flags: packet.ACK}
	udp  = packet.UDP{Src: 40000, Dst: 80}
	echo = packet.Echo{ID: 40000, Seq: 3}
)

// opener is a transport header that begins a flow.
type opener struct {
	name string
	packet.Transport
	state bpf.DatapathFlowState
}

var openers = []opener{
	{"syn", syn, 0},
	{"middle", ack, bpf.DatapathFlowStateFLOW_TCP_MID},
	{"udp", udp, 0},
	{"echo", echo, 0},
	{"sctp", packet.SCTP{Src: 40000, Dst: 80}, 0},
	{"gre", packet.Raw(packet.ProtoGRE), 0},
}

// eachFamily runs a subtest a family, each on a node of its own.
func eachFamily(t *testing.T, test func(n *node, f family)) {
	t.Helper()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) { test(newNode(t), f) })
	}
}
