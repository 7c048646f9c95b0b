// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// tunnelDev is the device that packets to other nodes' pods go by; vni is of all of them.
const (
	tunnelDev = "culvert-vxlan"
	vni       = 1
	tunnelMTU = 1500 - 70 // over IPv6
)

// linkage is how two nodes reach each other's pods: directly, or by a tunnel over IPv4 or IPv6.
type linkage int

const (
	direct linkage = iota
	overV4
	overV6
)

// remoteRoute is netdev's.
type remoteRoute struct {
	Prefix      netip.Prefix
	Via         netip.Addr
	Tunnel      bool
	Src         netip.Addr
	Unreachable bool
}

// plan is what linknode reads.
type plan struct {
	PinPath string
	Attach  string
	MTU     int
	Addrs   []netip.Addr
	Remotes []maps.Remote
	Routes  []remoteRoute
}

// apply has the node made what the agent would make it.
func (p plan) apply(t *testing.T, n *netns.Node) {
	t.Helper()
	in, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	n.MustRun(t, string(in), filepath.Join(n.Bin.Ref, "linknode"))
}

// mesh is nodes that reach each other's pods by what the agent makes, and no other way.
type mesh struct {
	*cluster
	ways func(i, j int) linkage
}

func newMesh(t *testing.T, nodes int, ways func(i, j int) linkage, expected ...string) *mesh {
	t.Helper()
	m := &mesh{wire(t, netns.Layout{Nodes: nodes}, expected...), ways}
	m.part(t)
	for _, n := range m.Nodes {
		m.plan(t, n).apply(t, n)
	}
	return m
}

// part takes away the ways to other nodes' pods: the network between the nodes knows no pod.
func (c *cluster) part(t *testing.T) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, to := range c.Nodes {
			for _, v := range families {
				c.Outside().IP(t, fmt.Sprintf("route replace blackhole %s", to.PodRange(v)))
				if to != n {
					n.IP(t, fmt.Sprintf("route del %s", to.PodRange(v)))
				}
			}
		}
	}
}

// tunnelAddr is the node's as other nodes' pods see it.
func tunnelAddr(n *netns.Node, v int) netip.Addr { return n.PodRange(v).Addr() }

func (m *mesh) plan(t *testing.T, n *netns.Node) plan {
	t.Helper()
	p := plan{PinPath: n.PinPath, Attach: "auto", MTU: tunnelMTU, Addrs: []netip.Addr{tunnelAddr(n, 4), tunnelAddr(n, 6)}}
	uplink := devices(t, n.NS)[n.Uplinks[0].Dev].Index
	for _, v := range families {
		p.Routes = append(p.Routes, remoteRoute{Prefix: n.PodRange(v), Unreachable: true})
		for _, to := range m.Nodes {
			if to == n {
				continue
			}
			up := to.Uplinks[0]
			remote := maps.Remote{Prefix: to.PodRange(v), Kind: maps.RemoteTunnel, VNI: vni}
			route := remoteRoute{Prefix: to.PodRange(v), Tunnel: true, Src: tunnelAddr(n, v)}
			switch m.ways(n.Index, to.Index) {
			case direct:
				remote = maps.Remote{Prefix: to.PodRange(v), Kind: maps.RemoteDirect, Endpoint: up.V6, Ifindex: uplink}
				route = remoteRoute{Prefix: to.PodRange(v), Via: up.V6} // IPv4's too
				node := maps.Remote{Prefix: netip.PrefixFrom(up.Addr(v), up.Addr(v).BitLen()), Kind: maps.RemoteNode, Endpoint: up.Addr(v)}
				p.Remotes = append(p.Remotes, node)
			case overV4:
				remote.Endpoint = up.V4
			case overV6:
				remote.Endpoint = up.V6
			}
			p.Remotes, p.Routes = append(p.Remotes, remote), append(p.Routes, route)
		}
	}
	return p
}

// mixed has nodes 0 and 1 reach each other directly, 0 and 2 by IPv4, 1 and 2 by IPv6.
func mixed(i, j int) linkage { return []linkage{direct, direct, overV4, overV6}[i+j] }

// source is the address of node i's own packets as the pods of node j see it.
func (m *mesh) source(i, j, v int) netip.Addr {
	if m.ways(i, j) == direct {
		return m.Nodes[i].Uplinks[0].Addr(v)
	}
	return tunnelAddr(m.Nodes[i], v)
}

// Pods and nodes reach each other's pods, who see them as they are, whatever the way; a
// masquerading pod too. Fragments and hostPorts are no exception.
func TestPrivilegedRemotePods(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, mixed)
	conf := masquerading()
	conf["mtu"] = tunnelMTU
	pods := make([]*netns.Pod, 3)
	for i, n := range m.Nodes {
		pods[i], _ = serve(t, n, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Ports: netns.Both(8080, 80), Conf: conf})
	}
	for i, a := range pods {
		for j, b := range pods {
			if i == j {
				continue
			}
			t.Run(fmt.Sprintf("%dTo%d", i, j), func(t *testing.T) {
				each(t, protos, func(t *testing.T, proto string, v int) {
					sees := func(as ...netip.Addr) want { return want{server: b.Name, remote: as} }
					pod := sees(a.Addr(v))
					ask(t, a.NS, call(proto, b.Addr(v), 80), pod)
					passes(t, m.Nodes[i].NS, call(proto, b.Addr(v), 80), sees(m.source(i, j, v))) // its MTU is not the pod's
					ask(t, a.NS, call(proto, tunnelAddr(m.Nodes[j], v), 8080), pod)
					if m.ways(i, j) != direct {
						pod = sees(m.Nodes[i].Uplinks[0].Addr(v))
					}
					ask(t, a.NS, call(proto, m.Nodes[j].Uplinks[0].Addr(v), 8080), pod)
				})
			})
		}
	}
	unreachable(t, m)
}

// unreachable: an address of its own range that no pod has ends at the node.
func unreachable(t *testing.T, m *mesh) {
	t.Helper()
	for _, v := range families {
		for _, n := range m.Nodes[1:] {
			dead := n.PodRange(v).Addr().Next().Next()
			for range 50 {
				dead = dead.Next()
			}
			o, err := m.Nodes[0].Try(call("udp", dead, 80), 0)
			if err != nil || !slices.Contains([]netip.Addr{tunnelAddr(n, v), n.Uplinks[0].Addr(v)}, o.By) {
				t.Errorf("%s: want to be told so by %s, got %s (%v)", dead, n.Name, o, err)
			}
		}
	}
}
