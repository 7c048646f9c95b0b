// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// lateAnswer: the fast path has the flow of what a pod sends, but had to leave this
// packet to the stack. It says what it would have said.
func (n *Node) lateAnswer(in In, v *view, from uint64) (s step, orphan bool) {
	orphan = n.orphan(in, v)
	r := n.Rows[v.Tuple]
	switch {
	case r == nil || r.From != from || n.expired(r, v.Proto):
		return step{}, orphan
	case r.Action != GoWire || !r.Translate:
		return toStack, orphan
	case orphan:
		return drop(FragmentOrder), orphan
	}
	return step{verdict: Stack, loose: v.rewrite(n.out, r, false)}, orphan
}

// orphan keeps the fragments together of what the stack sends: are they out of order?
func (n *Node) orphan(in In, v *view) bool {
	return v.kind == first && !n.begin(in, v, ToWireSide) || v.kind == later && !n.follow(in, v, ToWireSide)
}

// strange: the tunnel has an address of the family, and the packet's source is none of them.
func (n *Node) strange(v *view) bool {
	_, known := n.tunnelAddr(v)
	return known && unicast(netip.AddrFrom16(v.Src).Unmap()) && !slices.Contains(n.Tunnel, v.Src)
}

func (n *Node) tunnelAddr(v *view) (Addr, bool) {
	for _, a := range n.Tunnel {
		if a.v4() == !v.v6 {
			return a, true
		}
	}
	return Addr{}, false
}

// masquerade gives what a pod sends outside an address of the node's and a port of the
// pool; of the host's own (from 0) it moves what meets a pod's port. Strangers get the tunnel's.
// Without masks nothing is masqueraded, but what an earlier packet of the stack's has found its
// place taken by keeps another port: conntrack has to know that packet, and here it knows none.
func (n *Node) masquerade(v *view, from uint64, masks, orphan bool) step {
	v.Side = ToWireSide
	r := n.find(v, from)
	if r == nil {
		n.forgetClosed(v)
		dst := netip.AddrFrom16(v.Dst).Unmap()
		switch {
		case from != 0 && (!masks || v.echoReply() || !unicast(dst) || n.Nonmasq(v.Dst) || n.Remote(v.Dst).Is), from == 0 && !v.strange && !n.meets(v), v.strange && v.echoReply():
			return step{}
		case orphan:
			return drop(FragmentOrder)
		}
		if s := n.maskedFlow(v, from); s.verdict != pass {
			return s
		}
		r = n.Rows[v.Tuple]
	}
	if !r.Translate {
		return toStack
	}
	if orphan {
		return drop(FragmentOrder)
	}
	n.touch(v, r)
	return step{verdict: Stack, loose: v.rewrite(n.out, r, false)}
}

// meets: does the node itself send to where a masqueraded flow has the same number?
func (n *Node) meets(v *view) bool {
	if v.Proto == tcp && !v.syn() {
		return false
	}
	r := n.Rows[v.Reverse()]
	return r != nil && r.Masked && !n.lapsed(r, v.Proto)
}

func (n *Node) maskedFlow(v *view, from uint64) step {
	r := Row{
		Src: v.Src, Dst: v.Dst, Sport: v.Sport, Dport: v.Dport, Action: GoStack, Masked: true, Translate: true,
		From: from, Mid: v.Proto == tcp && !v.syn(),
	}
	if from != 0 || v.strange {
		own, ok := n.Uplink(v.Dst)
		if v.strange {
			own, ok = n.tunnelAddr(v)
		}
		if !ok {
			return drop(NoAddress)
		}
		r.Src = own
	}
	if v.hint != 0 && v.changeable() {
		r.Sport = v.hint
	}
	if !n.claim(v, r, GoStack, !v.changeable() || n.pooled(r.Sport)) {
		return drop(PortsExhausted)
	}
	return step{}
}

// noteRequest: the answer to a fragment that the stack brings to the pod must not be
// masqueraded.
func (n *Node) noteRequest(v *view) {
	key := v.Reverse()
	key.Side = ToWireSide
	n.leaveToStack(key)
}
