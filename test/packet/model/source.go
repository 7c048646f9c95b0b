// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// sender is the generation of the pod that sends, or what becomes of a packet that is
// from none: a pod speaks with its own addresses, those of another interface of its
// container, and on its link before it has one; always with its own MAC address. What an
// unchecked one says beside that is the stack's.
func (n *Node) sender(in In, v *view) (uint64, step) {
	if v.Dst.loopback() {
		return 0, drop(Loopback)
	}
	link := n.Links[in.Device]
	here := n.Pods[link.first()]
	unchecked := here.Generation != 0 && !here.Checked
	if v.unreadable && !unchecked && n.astray(in, v) {
		return 0, drop(Source)
	}
	ownMAC := [6]byte(in.Frame[6:]) == here.MAC
	pod, ok := n.Pods[v.Src]
	ok = ok && (!v.v6 || !v.Src.v4())
	if ok && (pod.Device == in.Device && unchecked || (pod.Device == in.Device || pod.Netns == link.Netns) && ownMAC) {
		return pod.Generation, step{}
	}
	if generation, loose, own := n.ownAnswer(in, v); own && !ok {
		return generation, step{loose: loose}
	}
	switch {
	case v.Src.loopback():
		return 0, drop(Loopback)
	case unchecked:
		return 0, toStack
	case ok:
		return 0, drop(Source)
	}
	src := netip.AddrFrom16(v.Src)
	if ownMAC && v.v6 && v.Proto == icmp6 && (src.IsUnspecified() || src.IsLinkLocalUnicast()) {
		switch v.icmpType {
		case 130, 131, 132, 133, 135, 136, 143: // MLD, RS, NS, NA, MLDv2
			return 0, toStack
		}
	}
	return 0, drop(Source)
}

// astray: would the message turn away what others send: a redirect, a router's
// advertisement, a neighbour's about an address that is not the pod's?
func (n *Node) astray(in In, v *view) bool {
	switch {
	case v.message(5, 137) || v.message6(134):
		return true
	case !v.message6(136):
		return false
	}
	at := v.l4 + 8
	if at > farthest || at+16 > len(n.out) {
		return true
	}
	target := Addr(n.out[at:])
	if netip.AddrFrom16(target).IsLinkLocalUnicast() {
		return target == gateway(true)
	}
	return !n.onLink(in, target)
}

// gateway is what a pod sees of a hidden caller.
func gateway(v6 bool) Addr {
	if v6 {
		return Addr{0: 0xfe, 1: 0x80, 15: 1}
	}
	return mapped([]byte{169, 254, 1, 1})
}

// ownAnswer: a UDP socket that is bound to no address, and SCTP always, answers the hidden
// caller from the pod's link-local address. It is made to say the pod's own.
func (n *Node) ownAnswer(in In, v *view) (generation uint64, loose [4]int, ok bool) {
	if !v.v6 || v.Proto != udp && v.Proto != sctp || !netip.AddrFrom16(v.Src).IsLinkLocalUnicast() || v.Dst != gateway(true) {
		return 0, loose, false
	}
	for _, own := range n.Links[in.Device].Addrs {
		t := v.Tuple
		t.Src = own
		if own.v4() || n.Rows[t] == nil {
			continue
		}
		loose = v.rewrite(n.out, &Row{Src: own, Dst: v.Dst, Sport: v.Sport, Dport: v.Dport}, false)
		v.Src = own
		return n.generation(own), loose, true
	}
	return 0, loose, false
}
