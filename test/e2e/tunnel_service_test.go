// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// strangers is a mesh of two nodes: the first has services that lead to the second's pod, and
// kube-proxy's rules do not masquerade its own calls of them. Their source is the uplink's then.
type strangers struct {
	*mesh
	pod     *netns.Pod
	service service
}

func newStrangers(t *testing.T, m *mesh) *strangers {
	t.Helper()
	s := &strangers{mesh: m}
	m.Nodes[0].Add(t, netns.PodSpec{Name: "a"}) // which switches forwarding on
	s.pod, _ = serve(t, m.Nodes[1], netns.PodSpec{Name: "b", Conf: map[string]any{"mtu": tunnelMTU}})
	s.service = service{number: 1, endpoint: s.pod.Addr}
	return s
}

// seen is what the pod takes the first node, and who is behind it, for.
func (s *strangers) seen(v int) want {
	return want{server: "b", remote: only(tunnelAddr(s.Nodes[0], v))}
}

// The node's own call of a service that leads through the tunnel is answered, though its source is
// an address that the far end does not take from it; the pod sees the tunnel's. So is what others
// send to the pod by the node, and who calls a port that nobody has is told so.
func TestPrivilegedTunnelService(t *testing.T) {
	t.Parallel()
	for _, nf := range netfilters {
		t.Run(nf.name, func(t *testing.T) {
			byIPv4OrIPv6(t, func(t *testing.T, m *mesh) {
				s := newStrangers(t, m)
				node, outside := m.Nodes[0], m.Outside()
				nf.proxy(t, node, []service{s.service})
				each(t, protos, func(t *testing.T, proto string, v int) {
					passes(t, node.NS, call(proto, s.service.clusterAddr(v), 80), s.seen(v))
					outside.IP(t, fmt.Sprintf("route replace %s via %s", s.pod.Addr(v), node.Uplinks[0].Addr(v)))
					passes(t, outside.NS, call(proto, s.pod.Addr(v), 80), s.seen(v))
				})
				for _, v := range families {
					dead := call("udp", s.pod.Addr(v), 81)
					dead.From = netip.AddrPortFrom(node.Uplinks[0].Addr(v), 0)
					if o, err := node.Try(dead, 0); err != nil || o.By != s.pod.Addr(v) {
						t.Errorf("%s: want to be told so by the pod, got %s (%v)", dead, o, err)
					}
				}
			})
		})
	}
}

// Two sockets of the node with one port, one of them calling the pod from the tunnel's address, the
// other the service: whichever is first, each gets its own answers. The ports are of the pool, where
// they stay what they are.
func TestPrivilegedTunnelServiceMeets(t *testing.T) {
	t.Parallel()
	byIPv4OrIPv6(t, func(t *testing.T, m *mesh) {
		s := newStrangers(t, m)
		node := m.Nodes[0]
		netfilters[0].proxy(t, node, []service{s.service})
		port := uint16(20000)
		each(t, []string{"tcp", "udp"}, func(t *testing.T, proto string, v int) {
			for _, serviceFirst := range []bool{true, false} {
				port++
				direct, byService := call(proto, s.pod.Addr(v), 80), call(proto, s.service.clusterAddr(v), 80)
				direct.From = netip.AddrPortFrom(tunnelAddr(node, v), port)
				byService.From = netip.AddrPortFrom(node.Uplinks[0].Addr(v), port)
				calls := []netns.Call{direct, byService}
				if serviceFirst {
					calls = []netns.Call{byService, direct}
				}
				s.apart(t, v, calls)
			}
		})
	})
}

// apart has both calls speak in turn; the server must know them by different ports.
func (s *strangers) apart(t *testing.T, v int, calls []netns.Call) {
	t.Helper()
	flows, ports := make([]*netns.Flow, len(calls)), map[uint16]bool{}
	for i, c := range calls {
		f, err := s.Nodes[0].Open(c)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		defer f.Reset()
		flows[i] = f
		s.speak(t, v, f, ports)
	}
	if len(ports) != len(calls) {
		t.Errorf("%v: the server sees ports %v", calls, ports)
	}
	for _, f := range flows {
		s.speak(t, v, f, ports)
	}
	if len(ports) != len(calls) {
		t.Errorf("%v: the server sees ports %v later", calls, ports)
	}
}

func (s *strangers) speak(t *testing.T, v int, f *netns.Flow, ports map[uint16]bool) {
	t.Helper()
	r, err := f.Ask()
	if err == nil {
		err = s.seen(v).check(r)
	}
	if err != nil {
		t.Errorf("want %s, got %v", s.seen(v), err)
		return
	}
	ports[r.Remote.Port()] = true
}
