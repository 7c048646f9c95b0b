// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// S2, CVE-2020-8558: who sits on an uplink's link, or in a pod, reaches nothing of the
// host's loopback, neither a hostPort nor a service that the host itself has there, nor
// does he pass for the host. Also when kube-proxy has set route_localnet for all.
func TestPrivilegedS2Loopback(t *testing.T) {
	t.Parallel()
	for _, localnet := range []string{"0", "1"} {
		t.Run("route_localnet"+localnet, func(t *testing.T) {
			t.Parallel()
			c := wire(t, netns.Layout{}, "loopback")
			node, outside := c.Nodes[0], c.Outside()
			_, onPod := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
			liar, _ := serve(t, node, netns.PodSpec{Name: "liar"})
			onHost := node.Serve(t, 81)
			node.Sysctl(t, "net/ipv4/conf/all/route_localnet", localnet)
			node.Sysctl(t, "net/ipv4/conf/all/rp_filter", "0")
			places := []place{
				{"Wire", outside.Link(t, "port0"), mac(t, devices(t, node.NS)["up0"].MAC), outside.Addr, node.Uplinks[0].Addr},
				{"Pod", liar.Link(t, liar.IfName), mac(t, liar.Host.MAC), liar.Addr, node.Uplinks[0].Addr},
			}
			for _, p := range places {
				for _, v := range families {
					for port, srv := range map[uint16]*netns.Server{8080: onPod, 81: onHost} {
						t.Run(fmt.Sprintf("%s/%d/%d", p.name, v, port), func(t *testing.T) { p.forge(t, node, v, port, srv) })
					}
				}
			}
		})
	}
}

// place is where forged frames enter the node.
type place struct {
	name      string
	link      *netns.Link
	node      packet.MAC
	own, call func(int) netip.Addr
}

// forge sends a SYN and a datagram with each mixture of loopback and honest addresses.
// Every one has to be counted; no SYN is answered and no datagram arrives.
func (p place) forge(t *testing.T, n *netns.Node, v int, port uint16, srv *netns.Server) {
	addrs := []struct{ src, dst netip.Addr }{
		{p.own(v), loopback[v]}, {loopback[v], loopback[v]}, {loopback[v], p.call(v)},
	}
	if v == 4 {
		other := netip.MustParseAddr("127.1.2.3")
		addrs = append(addrs, struct{ src, dst netip.Addr }{p.own(v), other}, struct{ src, dst netip.Addr }{other, p.call(v)})
	}
	for i, a := range addrs {
		key := fmt.Sprintf("%s-%d", t.Name(), i)
		base := packet.Packet{DstMAC: p.node, SrcMAC: packet.MAC(p.link.MAC), Src: a.src, Dst: a.dst}
		for _, forged := range []packet.Packet{
			base.As(packet.TCP{Src: 40000, Dst: port, Flags: packet.SYN}),
			base.As(packet.UDP{Src: 40000, Dst: port}).With([]byte("hold:" + key + ";")),
		} {
			before := drops(t, n, "loopback")
			if err := p.link.Send(forged.Frame()); err != nil {
				t.Fatal(err)
			}
			err := netns.Poll(func() error {
				if now := drops(t, n, "loopback"); now != before+1 {
					return fmt.Errorf("loopback drops: want %d, got %d", before+1, now)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%T %s -> %s: %v", forged.Transport, a.src, a.dst, err)
			}
		}
		if srv.Has(key) {
			t.Errorf("%s -> %s: want it dropped, but %s has it", a.src, a.dst, srv.Name)
		}
	}
	synAck := func(f []byte) bool {
		s := read(f)
		return s.proto == packet.ProtoTCP && s.flags == packet.SYN|packet.ACK
	}
	if f, err := p.link.TryNext(synAck); f != nil || err != nil {
		t.Errorf("want no answer to a forged SYN, got %x (%v)", f, err)
	}
}
