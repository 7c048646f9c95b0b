// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

const solicitation = 86 // bytes of one with the sender's address as its only option

// solicited turns a pod's neighbour solicitation for anybody but itself into the
// gateway's answer. A chained one's gateway is somebody else: only the hidden caller is ours.
func (n *Node) solicited(in In, v *view) bool {
	pod, ok := n.Pods[n.Links[in.Device].first()]
	b := n.out
	if !ok || !v.message6(135) || v.l4 != ethernet+40 || len(b) != solicitation || v.Src == (Addr{}) {
		return false
	}
	nd := b[v.l4:]
	if nd[24] != 1 || nd[25] != 1 {
		return false
	}
	target := Addr(nd[8:24])
	src := netip.AddrFrom16(v.Src)
	honest := [6]byte(in.Frame[6:]) == pod.MAC && (src.IsLinkLocalUnicast() || n.onLink(in, v.Src))
	if pod.Chained && target != gateway(true) || n.onLink(in, target) || !honest {
		return false
	}
	copy(b, b[6:12])
	copy(b[6:], pod.HostMAC[:])
	copy(b[ethernet+24:], v.Src[:])
	copy(b[ethernet+8:], target[:])
	b[ethernet+7] = 255
	nd[0], nd[4], nd[24] = 136, 0xe0, 2
	copy(nd[26:], pod.HostMAC[:])
	all := covered{at: v.l4 + 2, lo: v.l4, hi: len(b), pseudo: sum(icmp6+32, b[ethernet+8:ethernet+40])}
	all.seal(b, state{total: 0xffff})
	return true
}

// onLink: is it an address of the pod that sends?
func (n *Node) onLink(in In, a Addr) bool {
	pod, ok := n.Pods[a]
	return ok && pod.Device == in.Device
}

// message6: is it an ICMPv6 message of this type?
func (v *view) message6(kind uint8) bool { return v.v6 && v.icmp() && v.icmpType == kind }

// first is one of the addresses of the pod on the link.
func (l Link) first() (a Addr) {
	if len(l.Addrs) > 0 {
		a = l.Addrs[0]
	}
	return a
}
