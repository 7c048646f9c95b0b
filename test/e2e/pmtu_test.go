// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// narrow is the MTU of a link between peer0 and the host beyond it.
const narrow = 1320

// I1, N4: a link on the way is smaller than both ends' MTU. Its router's frag-needed or
// packet-too-big reaches the pod as one about the packet that the pod sent, and TCP and
// UDP go on, through a hostPort, by masquerade, and directly.
func TestPrivilegedI1PathMTU(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	far := extend(t, c, narrow)
	far.Serve(t, 80)
	unlimit(t, node.NS)
	up := node.Uplinks[0].Addr
	for _, tc := range []struct {
		name   string
		toPod  bool // far calls the pod, which is told when it answers
		to     func(p *netns.Pod) func(int) netip.Addr
		port   uint16
		seen   func(p *netns.Pod) func(int) netip.Addr
		config map[string]any
	}{
		{"HostPort", true, func(*netns.Pod) func(int) netip.Addr { return up }, 8080, nil, nil},
		{"Pod", true, func(p *netns.Pod) func(int) netip.Addr { return p.Addr }, 80, nil, nil},
		{"Masquerade", false, func(*netns.Pod) func(int) netip.Addr { return far.Addr }, 80,
			func(*netns.Pod) func(int) netip.Addr { return up }, masquerading()},
		{"FromPod", false, func(*netns.Pod) func(int) netip.Addr { return far.Addr }, 80,
			func(p *netns.Pod) func(int) netip.Addr { return p.Addr }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, v int) {
				// A pod of its own: what it learns of the path it keeps.
				p, _ := serve(t, node, netns.PodSpec{Name: "p", Ports: netns.Both(8080, 80), Conf: tc.config})
				defer p.Del(t)
				for _, flag := range []string{"-4", "-6"} { // else it asks for small segments at once
					far.MustRun(t, "", "ip", flag, "route", "flush", "cache")
				}
				link := p.Link(t, p.IfName)
				from, w := p.NS, want{server: far.Name}
				if tc.seen != nil {
					w.remote = only(tc.seen(p)(v))
				}
				if tc.toPod {
					from, w = far.NS, want{server: "p", remote: only(far.Addr(v))}
				}
				call := call(proto, tc.to(p)(v), tc.port)
				call.Size = map[string]int{"tcp": 20000, "udp": 1390}[proto]
				passes(t, from, call, w)
				toldMTU(t, link, p, v, far.Addr(v))
			})
		})
	}
}

// passes asks until the answer comes: of UDP the datagram that teaches is lost, and the
// host beyond has to learn the MTU of its own way too.
func passes(t *testing.T, from *netns.NS, c netns.Call, w want) {
	t.Helper()
	f, err := from.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Reset()
	tries, patience := 1, netns.Patience
	if c.Proto == "udp" {
		tries, patience = 8, soon
	}
	for i := range tries {
		r, err := f.Within(patience).Ask()
		if err == nil {
			err = w.check(r)
		}
		if err == nil {
			return
		}
		if i == tries-1 {
			t.Errorf("want %s, got %v", w, err)
		}
	}
}

// toldMTU wants the pod to have been told of the narrow link, in a right packet about
// one that it sent.
func toldMTU(t *testing.T, link *netns.Link, p *netns.Pod, v int, far netip.Addr) {
	t.Helper()
	kind := map[int][2]uint8{4: {3, 4}, 6: {2, 0}}[v]
	frame, err := link.Next(func(f []byte) bool {
		s := read(f)
		return s.proto == icmpOf(v) && [2]uint8{s.kind, s.code} == kind && s.dst == p.Addr(v)
	})
	if err != nil {
		t.Fatalf("frag-needed to the pod: %v", err)
	}
	if err := packet.Verify(frame); err != nil {
		t.Error(err)
	}
	s := read(frame)
	in := s.inner()
	mtu := s.info
	if v == 4 {
		mtu &= 0xffff
	}
	if mtu != narrow || in.src != p.Addr(v) || in.dst != far || (in.sport != 80 && in.dport != 80) {
		t.Errorf("want MTU %d about %s -> %s, got MTU %d about %s:%d -> %s:%d", narrow, p.Addr(v), far, mtu, in.src, in.sport, in.dst, in.dport)
	}
}

// N4: a pod whose MTU is smaller than the wire's is reached by full-size callers: who
// sends too much is told so by the node, about the packet that he sent.
func TestPrivilegedN4SmallPod(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2})
	node, outside := c.Nodes[0], c.Outside()
	p, _ := serve(t, node, netns.PodSpec{Name: "p", Ports: netns.Both(8080, 80), Conf: map[string]any{"mtu": narrow}})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	remote, _ := serve(t, c.Nodes[1], netns.PodSpec{Name: "remote"})
	unlimit(t, node.NS)
	for _, tc := range []struct {
		name string
		from *netns.NS
		src  func(int) netip.Addr
		to   func(int) netip.Addr
		port uint16
	}{
		{"HostPortFromOutside", outside.NS, outside.Addr, node.Uplinks[0].Addr, 8080},
		{"HostPortFromPod", b.NS, b.Addr, node.Uplinks[0].Addr, 8080},
		{"HostPortFromRemotePod", remote.NS, remote.Addr, node.Uplinks[0].Addr, 8080},
		{"PodFromOutside", outside.NS, outside.Addr, p.Addr, 80},
		{"PodFromPod", b.NS, b.Addr, p.Addr, 80},
	} {
		for _, v := range families {
			t.Run(fmt.Sprintf("%s/%d", tc.name, v), func(t *testing.T) {
				big := call("udp", tc.to(v), tc.port)
				big.Size = 1400
				o, err := tc.from.Try(big, 0) // may not be fragmented
				if err != nil || o.MTU != narrow {
					t.Errorf("1400 bytes: want to be told MTU %d, got %s with %d (%v)", narrow, o, o.MTU, err)
				}
				passes(t, tc.from, big, want{server: "p", remote: only(tc.src(v))})
				tcp := call("tcp", tc.to(v), tc.port)
				tcp.Size = 20000
				passes(t, tc.from, tcp, want{server: "p", remote: only(tc.src(v))})
			})
		}
	}
}
