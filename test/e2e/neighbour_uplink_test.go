// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// uplinkStage is a node whose uplink changes under two pods: both have hostPorts, and masked
// leaves with the node's address.
type uplinkStage struct {
	*cluster
	node       *netns.Node
	plain      *netns.Pod
	masked     *netns.Pod
	connection *netns.Flow // from outside, through the hostPort, since before the change
}

func newUplinkStage(t *testing.T, l netns.Layout) *uplinkStage {
	t.Helper()
	c := wire(t, l)
	s := &uplinkStage{cluster: c, node: c.Nodes[0]}
	c.Outside().Serve(t, 80)
	s.plain, _ = serve(t, s.node, netns.PodSpec{Name: "plain", Ports: netns.Both(8080, 80)})
	s.masked, _ = serve(t, s.node, netns.PodSpec{Name: "masked", Ports: netns.Both(8081, 80), Conf: masquerading()})
	var err error
	if s.connection, err = c.Outside().Open(call("tcp", s.node.Uplinks[0].V4, 8080)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.connection.Close)
	s.goesOn(t, s.node.Uplinks[0])
	return s
}

// goesOn wants every way over the uplink, in both directions.
func (s *uplinkStage) goesOn(t *testing.T, up netns.Uplink) {
	t.Helper()
	if _, err := s.connection.Ask(); err != nil {
		t.Errorf("open connection: %v", err)
	}
	s.comesIn(t, s.Outside(), up)
	s.getsOut(t, up)
}

func (s *uplinkStage) comesIn(t *testing.T, from *netns.Peer, up netns.Uplink) {
	t.Helper()
	each(t, protos, func(t *testing.T, proto string, v int) {
		ask(t, from.NS, call(proto, up.Addr(v), 8080), want{server: "plain", remote: only(from.Addr(v))})
		ask(t, from.NS, call(proto, up.Addr(v), 8081), want{server: "masked", remote: only(from.Addr(v))})
	})
}

func (s *uplinkStage) getsOut(t *testing.T, up netns.Uplink) {
	t.Helper()
	outside := s.Outside()
	each(t, protos, func(t *testing.T, proto string, v int) {
		ask(t, s.plain.NS, call(proto, outside.Addr(v), 80), want{server: outside.Name, remote: only(s.plain.Addr(v))})
		ask(t, s.masked.NS, call(proto, outside.Addr(v), 80), want{server: outside.Name, remote: only(up.Addr(v))})
	})
}

// again is what makes the addresses and routes that a device loses while it is down.
func (s *uplinkStage) again(t *testing.T, dev string) {
	t.Helper()
	up := s.node.Uplinks[0]
	s.node.IP(t, "link set "+dev+" up", fmt.Sprintf("addr replace %s/24 dev %s", up.V4, dev),
		fmt.Sprintf("addr replace %s/64 dev %s nodad", up.V6, dev),
		"route replace default via 10.10.0.1 dev "+dev, "route replace default via fd00:10::1 dev "+dev)
	s.node.Settle(t, dev, up.V6)
}

// checks wants CHECK of both pods to succeed.
func (s *uplinkStage) checks(t *testing.T) {
	t.Helper()
	for _, p := range []*netns.Pod{s.plain, s.masked} {
		if err := p.Check(); err != nil {
			t.Errorf("CHECK %s: %v", p.ID, err)
		}
	}
}

// reported wants CHECK of a pod to tell that an uplink lacks our program.
func reported(t *testing.T, p *netns.Pod) {
	t.Helper()
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "uplink") {
		t.Errorf("CHECK of %s: want an error about the uplink, got %v", p.ID, err)
	}
}

// next is the ADD that heals what nobody could see when it happened.
func (s *uplinkStage) next(t *testing.T) {
	t.Helper()
	s.node.Add(t, netns.PodSpec{Name: fmt.Sprintf("next%d", len(t.Name())), Conf: masquerading()}).Del(t)
}

// X1: an uplink that goes down and comes up again, and one that gets another name, carry on
// without a verb of ours, open connections too; pods come while it is down.
func TestPrivilegedX1UplinkFlaps(t *testing.T) {
	t.Parallel()
	s := newUplinkStage(t, netns.Layout{})
	up := s.node.Uplinks[0]
	t.Run("Down", func(t *testing.T) {
		s.node.IP(t, "link set up0 down")
		if err := s.plain.Check(); err != nil {
			t.Errorf("CHECK while the uplink is down: %v", err)
		}
		s.again(t, "up0")
		s.goesOn(t, up)
		s.checks(t)
	})
	t.Run("AddWhileDown", func(t *testing.T) {
		s.node.IP(t, "link set up0 down")
		p, _ := serve(t, s.node, netns.PodSpec{Name: "meanwhile", Ports: netns.Both(8082, 80), Conf: masquerading()})
		s.again(t, "up0")
		s.next(t) // while it was down it had no IPv6 address to masquerade with
		s.goesOn(t, up)
		each(t, small, func(t *testing.T, proto string, v int) {
			ask(t, s.Outside().NS, call(proto, up.Addr(v), 8082), want{server: "meanwhile"})
			ask(t, p.NS, call(proto, s.Outside().Addr(v), 80), want{server: s.Outside().Name, remote: only(up.Addr(v))})
		})
		p.Del(t)
		s.checks(t)
	})
	t.Run("Renamed", func(t *testing.T) {
		s.node.IP(t, "link set up0 down", "link set up0 name wan0")
		s.again(t, "wan0")
		s.goesOn(t, up)
		s.checks(t)
		s.next(t)
		s.goesOn(t, up)
		conf := s.node.Conf()
		conf["uplinks"] = []string{"up0"}
		if _, err := s.node.Exec("STATUS", nil, conf); netns.Code(err) != 50 || !strings.Contains(err.Error(), "up0") {
			t.Errorf("STATUS with the old name configured: want error 50 about up0, got %v", err)
		}
		s.node.IP(t, "link set wan0 down", "link set wan0 name up0")
		s.again(t, "up0")
	})
}

// X1: the uplink gets other addresses. hostPorts are open on them at once, and what is
// masqueraded has the new ones at once where the kernel names them (6.7), else by the next ADD.
func TestPrivilegedX1UplinkReaddressed(t *testing.T) {
	t.Parallel()
	s := newUplinkStage(t, netns.Layout{})
	old := s.node.Uplinks[0]
	now := netns.Uplink{Dev: "up0", V4: netip.MustParseAddr("10.10.0.77"), V6: netip.MustParseAddr("fd00:10::77")}
	s.node.IP(t, "addr flush dev up0 scope global", fmt.Sprintf("addr add %s/24 dev up0", now.V4), fmt.Sprintf("addr add %s/64 dev up0 nodad", now.V6),
		"route replace default via 10.10.0.1 dev up0", "route replace default via fd00:10::1 dev up0")
	s.node.Settle(t, "up0", now.V6)
	for v, to := range map[string]string{"10.244.0.0/24": now.V4.String(), "fd00:244::/64": now.V6.String()} {
		s.Outside().IP(t, "route replace "+v+" via "+to)
	}
	s.comesIn(t, s.Outside(), now)
	for _, v := range families {
		refuse(t, s.Outside().NS, call("udp", old.Addr(v), 8080))
	}
	if _, names := release(t, 6, 7); names {
		s.getsOut(t, now)
	}
	s.next(t)
	s.getsOut(t, now)
	s.comesIn(t, s.Outside(), now)
	s.checks(t)
}

// X1: a second uplink that comes later is ours from the next ADD on, and CHECK tells until
// then; the first goes on all the time, also when the second goes.
func TestPrivilegedX1UplinkAdded(t *testing.T) {
	t.Parallel()
	s := newUplinkStage(t, netns.Layout{})
	other := netns.NewPeer(t, 1)
	second := s.node.AddUplink(t, other, 1, 1500)
	other.IP(t, "route add 10.244.0.0/24 via "+second.V4.String(), "route add fd00:244::/64 via "+second.V6.String())
	reported(t, s.plain)
	s.goesOn(t, s.node.Uplinks[0])
	s.next(t)
	s.checks(t)
	s.goesOn(t, s.node.Uplinks[0])
	s.comesIn(t, other, second)
	s.node.IP(t, "link del up1")
	s.next(t)
	s.goesOn(t, s.node.Uplinks[0])
	s.checks(t)
}

// X1: an uplink that is unplugged and plugged in again is another device. The next ADD makes
// it ours. Connections to hostPorts that say something before that, if only that they are
// alive, are reset by the node, which knows nothing of them.
func TestPrivilegedX1UplinkReplaced(t *testing.T) {
	t.Parallel()
	s := newUplinkStage(t, netns.Layout{})
	up := s.node.Uplinks[0]
	before := devices(t, s.node.NS)["up0"].Index
	s.node.IP(t, "link del up0")
	s.node.Uplinks = nil
	s.node.AddUplink(t, s.Outside(), 0, 1500)
	s.again(t, "up0")
	if now := devices(t, s.node.NS)["up0"].Index; now == before {
		t.Fatalf("up0 has index %d again", now)
	}
	reported(t, s.plain)
	s.next(t)
	s.checks(t)
	s.comesIn(t, s.Outside(), up)
	s.getsOut(t, up)
}

// X1: the uplink's MTU goes down and up under pods that keep theirs: what is too big is told
// so and comes through in smaller pieces, over open connections and new ones.
func TestPrivilegedX1UplinkMTU(t *testing.T) {
	t.Parallel()
	s := newUplinkStage(t, netns.Layout{MTU: 1500})
	for _, mtu := range []int{1400, 1500, 9000, 1300} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			s.Outside().IP(t, fmt.Sprintf("link set port0 mtu %d", mtu))
			s.node.IP(t, fmt.Sprintf("link set up0 mtu %d", mtu))
			s.node.IP(t, "route flush cache")
			s.checks(t)
			up := s.node.Uplinks[0]
			if _, err := s.connection.Sized(60000).Within(netns.Patience).Ask(); err != nil {
				t.Errorf("open connection: %v", err)
			}
			for _, v := range families {
				big := call("tcp", up.Addr(v), 8080)
				big.Size, big.Timeout = 60000, netns.Patience
				ask(t, s.Outside().NS, big, want{server: "plain"})
				for _, p := range []*netns.Pod{s.plain, s.masked} {
					big.To = netip.AddrPortFrom(s.Outside().Addr(v), 80)
					ask(t, p.NS, big, want{server: s.Outside().Name})
				}
			}
			p, _ := serve(t, s.node, netns.PodSpec{Name: fmt.Sprintf("p%d", mtu)})
			if got := devices(t, p.NS)[p.IfName].MTU; got != mtu {
				t.Errorf("MTU of a new pod: want %d, got %d", mtu, got)
			}
			for _, to := range []*netns.Pod{s.plain, s.masked} { // of other MTUs
				big := call("tcp", to.V4, 80)
				big.Size, big.Timeout = 60000, netns.Patience
				ask(t, p.NS, big, want{server: to.Name})
			}
		})
	}
}
