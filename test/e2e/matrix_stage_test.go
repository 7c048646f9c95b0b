// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

var matrixLayout = netns.Layout{Nodes: 2, Uplinks: 2}

// matrixStage is what the matrix is played on: two nodes with two uplinks each, the pod
// that is called, and everybody that calls.
type matrixStage struct {
	callers    map[string]matrixCaller
	pod, world map[string]matrixCalled // ways to call: the pod, by a pod
	names      map[netip.Addr]string
}

// matrixCaller is a row of the matrix.
type matrixCaller struct {
	ns    *netns.NS
	bound func(family int) netip.Addr // nil: the kernel chooses
}

// matrixCalled is a column: which addresses are called and who is to answer.
type matrixCalled struct {
	at     func(family int) []netip.AddrPort
	server string
	protos []string
	echoes *netns.Echoes // where protos has icmp
}

// endpoint is a pod, whoever made it.
type endpoint struct {
	*netns.NS
	Addr func(family int) netip.Addr
}

// addPod makes one.
type addPod func(t *testing.T, n *netns.Node, s netns.PodSpec) endpoint

func culvertPod(t *testing.T, n *netns.Node, s netns.PodSpec) endpoint {
	p := n.Add(t, s)
	return endpoint{p.NS, p.Addr}
}

// withPing are the protocols of a column that calls no port but 80.
var withPing = []string{"tcp", "udp", "icmp"}

func newMatrixStage(t *testing.T, net *netns.Net, add addPod) *matrixStage {
	t.Helper()
	node, other, outside, far := net.Nodes[0], net.Nodes[1], net.Outside(), net.Peers[1]
	up0, up1 := node.Uplinks[0], node.Uplinks[1]
	ports := append(netns.Both(8080, 80), append(netns.Both(8081, 80, up1.V4.String()), netns.Both(8081, 80, up1.V6.String())...)...)
	pod := add(t, node, netns.PodSpec{Name: "pod", Ports: ports})
	neighbour, plain := add(t, node, netns.PodSpec{Name: "neighbour"}), add(t, node, netns.PodSpec{Name: "plain"})
	masq := add(t, node, netns.PodSpec{Name: "masq", Conf: map[string]any{
		"ipMasq": true, "nonMasqueradeCIDRs": []string{"10.244.0.0/16", "fd00:244::/32"},
	}})
	remote := add(t, other, netns.PodSpec{Name: "remote"})
	for _, p := range []endpoint{pod, neighbour, remote} {
		p.Serve(t, 8080) // for themselves
	}
	s := &matrixStage{
		callers: map[string]matrixCaller{
			"outside":                                 {outside.NS, nil},
			"outside, on the second uplink":           {far.NS, nil},
			"another node":                            {other.NS, nil},
			"another node's pod":                      {remote.NS, nil},
			"another pod":                             {neighbour.NS, nil},
			"the pod itself":                          {pod.NS, nil},
			"the node":                                {node.NS, nil},
			"the node, bound to its second address":   {node.NS, up1.Addr},
			"the node, bound to its loopback address": {node.NS, ownLoopback},
			"a pod":             {plain.NS, nil},
			"a pod with ipMasq": {masq.NS, nil},
		},
		names: map[netip.Addr]string{up0.V4: "up0", up0.V6: "up0", up1.V4: "up1", up1.V6: "up1"},
	}
	for _, family := range families {
		s.names[node.PodRange(family).Addr().Next()] = "bridge"
	}
	s.pod = map[string]matrixCalled{
		"the pod's address":                     answering(t, pod.NS, pod.Addr),
		"hostPort, at each address of the node": {at: callAt(8080, up0.Addr, up1.Addr), server: "pod", protos: small},
		"hostPort with hostIP, there":           {at: callAt(8081, up1.Addr), server: "pod", protos: small},
		"hostPort with hostIP, elsewhere":       {at: callAt(8081, up0.Addr), server: "pod", protos: small},
		"localhost":                             {at: callAt(8080, ownLoopback), server: "pod", protos: small},
	}
	s.world = map[string]matrixCalled{
		"outside":                       answering(t, outside.NS, outside.Addr),
		"outside, on the second uplink": answering(t, far.NS, far.Addr),
		"the node":                      answering(t, node.NS, up0.Addr),
		"another node":                  answering(t, other.NS, other.Uplinks[0].Addr),
		"another pod":                   answering(t, neighbour.NS, neighbour.Addr),
		"another node's pod":            answering(t, remote.NS, remote.Addr),
	}
	return s
}

// answering has a namespace serve port 80 of an address.
func answering(t *testing.T, ns *netns.NS, at func(int) netip.Addr) matrixCalled {
	t.Helper()
	ns.Serve(t, 80)
	return matrixCalled{callAt(80, at), ns.Name, withPing, ns.Echoes(t)}
}

// callAt is one port at some addresses.
func callAt(port uint16, at ...func(int) netip.Addr) func(int) []netip.AddrPort {
	return func(family int) (list []netip.AddrPort) {
		for _, a := range at {
			list = append(list, netip.AddrPortFrom(a(family), port))
		}
		return list
	}
}

func ownLoopback(family int) netip.Addr {
	if family == 6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
