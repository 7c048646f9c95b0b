// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
)

// Layout says what Wire makes. Node i (from 0) has uplinks up0, up1, ...;
// uplink j leads to the peer j, a host that is also the switch of that network:
//
//	network j   10.1j.0.0/24   fd00:1j::/64    peer .1   node i .(10+i)
//	pods of i   10.244.i.0/24  fd00:244:i::/64
//
// Default routes lead to peer 0; each peer and node knows the way to the pods.
type Layout struct {
	Nodes   int // default 1
	Uplinks int // of each node, default 1
	MTU     int // of every wire, default 1500
}

// Net is what Wire made.
type Net struct {
	Nodes []*Node
	Peers []*Peer
}

// Outside is the host that the nodes' default routes lead to.
func (n *Net) Outside() *Peer { return n.Peers[0] }

// Peer is a host outside, on the network of its number.
type Peer struct {
	*NS
	V4, V6 netip.Addr
	Dev    string // the switch, on which the nodes are
}

// Uplink is one device of a node.
type Uplink struct {
	Dev    string
	V4, V6 netip.Addr
}

// Node is a host of pods.
type Node struct {
	*NS
	Index   int
	Uplinks []Uplink
	PinPath string // on bpffs, its own
	DataDir string // of host-local
	Bin     *Binaries

	Chain     Chain                  // behind which pods are made; nil: culvert makes them
	BeforeDel func(testing.TB, *Pod) // by Pod.Del; nil: nothing
}

// Wire makes the namespaces and the wires between them.
func Wire(tb testing.TB, l Layout) *Net {
	tb.Helper()
	l.Nodes, l.Uplinks, l.MTU = max(l.Nodes, 1), max(l.Uplinks, 1), max(l.MTU, 0)
	if l.MTU == 0 {
		l.MTU = 1500
	}
	bin := FindBinaries(tb)
	n := &Net{}
	for j := range l.Uplinks {
		n.Peers = append(n.Peers, NewPeer(tb, j))
	}
	for i := range l.Nodes {
		node := &Node{
			NS: New(tb, fmt.Sprintf("node%d", i)), Index: i, Bin: bin,
			PinPath: NodePins(tb), DataDir: filepath.Join(tb.TempDir(), "ipam"),
		}
		for j := range l.Uplinks {
			node.AddUplink(tb, n.Peers[j], j, l.MTU)
		}
		node.IP(tb, "route add default via 10.10.0.1", "route add default via fd00:10::1")
		n.Nodes = append(n.Nodes, node)
	}
	n.route(tb)
	return n
}

// NewPeer makes the host of network j.
func NewPeer(tb testing.TB, j int) *Peer {
	p := &Peer{
		NS: New(tb, fmt.Sprintf("peer%d", j)), Dev: "br0",
		V4: addr("10.%d.0.1", 10+j), V6: addr("fd00:%d::1", 10+j),
	}
	// A bridge without an address of its own has that of a port, and loses it with the port.
	p.IP(tb, fmt.Sprintf("link add br0 address 02:00:00:00:00:%02x type bridge forward_delay 0 mcast_snooping 0", 1+j),
		"link set br0 up",
		fmt.Sprintf("addr add %s/24 dev br0", p.V4), fmt.Sprintf("addr add %s/64 dev br0 nodad", p.V6))
	p.Sysctl(tb, "net/ipv4/conf/all/rp_filter", "0")
	p.Sysctl(tb, "net/ipv4/conf/br0/rp_filter", "0")
	return p
}

// AddUplink plugs another device of the node into network j.
func (n *Node) AddUplink(tb testing.TB, p *Peer, j, mtu int) Uplink {
	tb.Helper()
	u := Uplink{
		Dev: fmt.Sprintf("up%d", len(n.Uplinks)),
		V4:  addr("10.%d.0.%d", 10+j, 10+n.Index), V6: addr("fd00:%d::%d", 10+j, 10+n.Index),
	}
	port := fmt.Sprintf("port%d", n.Index)
	p.IP(tb, fmt.Sprintf("link add %s mtu %d type veth peer name %s mtu %d netns %s", port, mtu, u.Dev, mtu, n.Path()),
		fmt.Sprintf("link set %s master br0 up", port))
	n.IP(tb, fmt.Sprintf("link set %s up", u.Dev),
		fmt.Sprintf("addr add %s/24 dev %s", u.V4, u.Dev), fmt.Sprintf("addr add %s/64 dev %s nodad", u.V6, u.Dev))
	n.Uplinks = append(n.Uplinks, u)
	p.Settle(tb, port)
	p.Settle(tb, p.Dev, p.V6)
	n.Settle(tb, u.Dev, u.V6)
	return u
}

// route tells everybody the way to the pods and to the other networks.
func (n *Net) route(tb testing.TB) {
	tb.Helper()
	for _, to := range n.Nodes {
		for j, p := range n.Peers {
			p.routePods(tb, to, j)
			if to.Index > 0 {
				continue
			}
			for k := range n.Peers {
				if k != j {
					via := to.Uplinks[j]
					p.IP(tb, fmt.Sprintf("route add 10.%d.0.0/24 via %s", 10+k, via.V4),
						fmt.Sprintf("route add fd00:%d::/64 via %s", 10+k, via.V6))
				}
			}
		}
		for _, from := range n.Nodes {
			if from != to {
				from.routePods(tb, to, 0)
			}
		}
	}
}

func (ns *NS) routePods(tb testing.TB, to *Node, j int) {
	ns.IP(tb, fmt.Sprintf("route add %s via %s", to.PodRange(4), to.Uplinks[j].V4),
		fmt.Sprintf("route add %s via %s", to.PodRange(6), to.Uplinks[j].V6))
}

// PodRange is the subnet of the node's pods in family 4 or 6.
func (n *Node) PodRange(family int) netip.Prefix {
	if family == 6 {
		return netip.PrefixFrom(addr("fd00:244:%d::", n.Index), 64)
	}
	return netip.PrefixFrom(addr("10.244.%d.0", n.Index), 24)
}

// Addrs are the addresses of the node's uplinks, of both families.
func (n *Node) Addrs() []netip.Addr {
	var as []netip.Addr
	for _, u := range n.Uplinks {
		as = append(as, u.V4, u.V6)
	}
	return as
}

// Addr is the peer's address in family 4 or 6.
func (p *Peer) Addr(family int) netip.Addr { return pick(family, p.V4, p.V6) }

// Addr is the uplink's address in family 4 or 6.
func (u Uplink) Addr(family int) netip.Addr { return pick(family, u.V4, u.V6) }

func pick(family int, v4, v6 netip.Addr) netip.Addr {
	if family == 6 {
		return v6
	}
	return v4
}

func addr(format string, a ...any) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, a...)) }
