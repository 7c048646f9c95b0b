// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// ICMP types that only routers and owners of addresses may send.
const (
	redirect4, routerAdvert, neighbourSolicit, neighbourAdvert, redirect6 = 5, 134, 135, 136, 137
)

var (
	allNodes  = netip.MustParseAddr("ff02::1")
	gateway   = netip.MustParseAddr("fe80::1")
	multicast = packet.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// linkLocal is the address that the kernel gave the pod's interface.
func linkLocal(t *testing.T, p *netns.Pod) netip.Addr {
	t.Helper()
	for _, r := range routes(t, p.NS, "-6", "route", "show", "table", "local") {
		if a, err := netip.ParseAddr(r.Dst); err == nil && a.IsLinkLocalUnicast() && r.Dev == p.IfName {
			return a
		}
	}
	t.Fatal("the pod has no link-local address")
	return netip.Addr{}
}

// discovery is a message of neighbour discovery about a target (hop limit 255), with
// the option that gives a MAC to it: kind 1 is the source's, 2 the target's.
func (f *forger) discovery(src, dst netip.Addr, kind uint8, target netip.Addr, option uint8, of packet.MAC) packet.Packet {
	flags := []byte{0, 0, 0, 0}
	if kind == neighbourAdvert {
		flags[0] = 0x20 // override
	}
	body := append(flags, target.AsSlice()...)
	if kind == redirect6 {
		body = append(body, f.victim.V6.AsSlice()...) // whose way shall be another
	}
	body = append(append(body, option, 1), of[:]...)
	p := f.packet(src, dst).As(packet.ICMP{Type: kind}).With(body).Lives(255)
	if dst.IsMulticast() {
		p.DstMAC = multicast
	}
	return p
}

// S1: a pod that says by neighbour discovery where others are, or that it is a router,
// is not heard, wherever it says it from.
func TestPrivilegedS1Discovery(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	f := newForger(t, c)
	// A node that would believe.
	for _, key := range []string{"accept_redirects", "accept_ra", "drop_unsolicited_na"} {
		value := map[string]string{"accept_redirects": "1", "accept_ra": "2", "drop_unsolicited_na": "0"}[key]
		f.node.Sysctl(t, "net/ipv6/conf/"+f.pod.Host.Name+"/"+key, value)
	}
	f.node.Sysctl(t, "net/ipv4/conf/"+f.pod.Host.Name+"/accept_redirects", "1")
	before := f.beliefs(t)
	own, ll, up := packet.MAC(f.link.MAC), linkLocal(t, f.pod), f.node.Uplinks[0].V6
	outside := c.Outside().V6
	for name, p := range map[string]packet.Packet{
		"AdvertVictim":         f.discovery(f.pod.V6, gateway, neighbourAdvert, f.victim.V6, 2, own),
		"AdvertVictimToAll":    f.discovery(ll, allNodes, neighbourAdvert, f.victim.V6, 2, own),
		"AdvertVictimAsVictim": f.discovery(f.victim.V6, gateway, neighbourAdvert, f.victim.V6, 2, own),
		"AdvertGateway":        f.discovery(ll, allNodes, neighbourAdvert, gateway, 2, own),
		"AdvertNode":           f.discovery(ll, gateway, neighbourAdvert, up, 2, own),
		"AdvertOutside":        f.discovery(f.pod.V6, gateway, neighbourAdvert, outside, 2, own),
		"SolicitAsVictim":      f.discovery(f.victim.V6, gateway, neighbourSolicit, gateway, 1, own),
		"SolicitForeignFrame":  f.discovery(f.pod.V6, gateway, neighbourSolicit, gateway, 1, own).Link(f.host, mac(t, f.victim.Inside.MAC)),
		"Redirect":             f.discovery(ll, f.victim.V6, redirect6, ll, 2, own),
		"RedirectTheNode":      f.discovery(f.pod.V6, up, redirect6, ll, 2, own),
		"RedirectAsGateway":    f.discovery(gateway, up, redirect6, ll, 2, own),
	} {
		t.Run(name, func(t *testing.T) { f.dropped(t, p.Frame()) })
	}
	t.Run("Redirect4", func(t *testing.T) {
		about := f.packet(f.node.Uplinks[0].V4, c.Outside().V4).As(packet.UDP{Src: 1, Dst: 2}).Frame()[packet.EthLen:]
		for _, to := range []netip.Addr{f.node.Uplinks[0].V4, f.victim.V4, c.Outside().V4} {
			for _, code := range []uint8{0, 1} {
				f.dropped(t, f.packet(f.pod.V4, to).As(packet.ICMP{Type: redirect4, Code: code}).With(append(f.pod.V4.AsSlice(), about...)).Frame())
			}
		}
	})
	if after := f.beliefs(t); !slices.Equal(before, after) {
		t.Errorf("neighbours and routes of the node: want\n%v, got\n%v", before, after)
	}
}

// S1, CVE-2020-10749: a pod's router advertisement makes it nobody's router, also where
// the node accepts them on every device, and hidden behind extension headers too. The
// same message of a true router is believed.
func TestPrivilegedS1RouterAdvertisement(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	f := newForger(t, c)
	for _, dev := range []string{"all", "default", "up0", f.pod.Host.Name, f.victim.Host.Name} {
		f.node.Sysctl(t, "net/ipv6/conf/"+dev+"/accept_ra", "2")
	}
	before := f.beliefs(t)
	ll := linkLocal(t, f.pod)
	// Lifetime 1800 s, high preference, and a prefix to configure an address from.
	body := []byte{64, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}
	body = append(body, 3, 4, 64, 0xc0, 0, 0, 0x70, 0x80, 0, 0, 0x70, 0x80, 0, 0, 0, 0)
	body = append(body, netip.MustParseAddr("2001:db8:bad::").AsSlice()...)
	padding := packet.Extension{Protocol: packet.ProtoDstOpts, Data: packet.PadN}
	for _, src := range []netip.Addr{ll, f.pod.V6, gateway, netip.IPv6Unspecified(), linkLocal(t, f.victim)} {
		for _, dst := range []netip.Addr{allNodes, gateway, f.victim.V6} {
			advert := f.packet(src, dst).As(packet.ICMP{Type: routerAdvert}).With(body).Lives(255)
			if dst == allNodes {
				advert.DstMAC = multicast
			}
			hidden, fragmented := advert, advert
			hidden.Extensions = []packet.Extension{{Protocol: packet.ProtoHopOpts, Data: packet.PadN}, padding}
			fragmented.Inner = []packet.Extension{padding}
			t.Run(src.String()+"/"+dst.String(), func(t *testing.T) {
				f.dropped(t, advert.Frame(), hidden.Frame())
				f.dropped(t, advert.Fragments(1, 4096)...)
				f.dropped(t, fragmented.Fragments(2, 4096)...)
			})
		}
	}
	if after := f.beliefs(t); !slices.Equal(before, after) {
		t.Errorf("neighbours and routes of the node: want\n%v, got\n%v", before, after)
	}
	if err := advertised(t, f.node, c.Outside(), 1800e9, true); err != nil {
		t.Errorf("a true router: %v", err)
	}
}
