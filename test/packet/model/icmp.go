// SPDX-License-Identifier: Apache-2.0

package model

import "encoding/binary"

const icmpHeader = 8

// quote is the packet that an error is about, as far as it is quoted.
type quote struct {
	view
	at int // offset of its network header
}

// readQuote understands the quoted packet: its addresses, and the first 8 bytes of its
// transport header, which every error has to quote (RFC 792, RFC 4443).
func (v *view) readQuote(b []byte) (q quote, ok bool) {
	q.at, q.v6 = v.l4+icmpHeader, v.v6
	if q.at > farthest {
		return q, false
	}
	q.base = q.at - ethernet // as if it stood behind an Ethernet header
	inner := b[q.base:]
	if v.v6 {
		ok = q.parse6(inner)
	} else {
		ok = len(inner) >= ethernet+20 && q.parse4(inner)
	}
	q.l4 += q.base
	if !ok || q.kind == later || q.unreadable || q.l4 > farthest || q.l4+8 > len(b) {
		return q, false
	}
	h := b[q.l4:]
	switch {
	case q.Proto == tcp || q.Proto == udp || q.Proto == sctp:
		q.Sport, q.Dport = binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])
		q.unsummed = q.Proto == udp && h[6] == 0 && h[7] == 0
	case q.icmp():
		return q, q.icmpHeader(h)
	}
	return q, true
}

// errorAbout carries an ICMP error to who sent the packet that it is about, by the row of
// what goes the other way, and rewrites the quotation to what he had sent.
func (n *Node) errorAbout(in In, v *view) step {
	if !v.quotes() || v.kind != whole {
		return toStack
	}
	q, ok := v.readQuote(n.out)
	if !ok {
		return toStack
	}
	r := n.quoted(in, v, &q)
	fromStack := in.Hook == ToPod || in.Hook == ToUplink || in.Hook == ToTunnel
	if r == nil || fromStack && !r.Translate || r.To != 0 && n.generation(r.Dst) != r.To {
		return toStack
	}
	out := *r
	// Who tells says so himself, unless he is the one that was called, or the pod behind it, or the
	// far end of the tunnel takes nothing from him.
	if v.Src != q.Dst && (in.Hook != FromPod || !r.Translate) && (in.Hook != ToTunnel || r.From != 0) {
		out.Src = v.Src
	}
	action := r.Action
	if fromStack {
		action = GoStack
	}
	hop := in.Hook != FromHost && (action == GoPod || action == GoWire)
	if hop && v.ttl <= 1 {
		return toStack
	}
	length := len(in.Frame) - ethernet
	if in.GSOSize > 0 {
		length = in.GSOSize + v.headers
	}
	if action == GoWire && length > n.Route(out.Src, out.Dst) {
		return toStack
	}
	return n.sendError(v, &q, &out, r, action, hop)
}

func (n *Node) sendError(v *view, q *quote, out, r *Row, action Action, hop bool) step {
	sum, _ := v.transportSum(n.out)
	before := sum.state(n.out)
	s := step{verdict: Redirect}
	if r.Translate {
		s.loose = q.rewriteQuote(n.out, r)
	}
	out.Sport, out.Dport = v.Sport, v.Dport
	v.writeNetworkSealed(n.out, out, hop, &s.loose)
	sum, _ = v.transportSum(n.out)
	sum.seal(n.out, before)
	if !before.exact {
		s.loose[1] = sum.at
	}
	pod := n.Pods[r.Dst]
	switch action {
	case GoPod:
		copy(n.out, pod.MAC[:])
		copy(n.out[6:], pod.HostMAC[:])
	case GoHost:
		clear(n.out[:12])
	case GoStack:
		s.verdict = Stack
	}
	return s
}

// quoted is the row of the packets that go the other way. A pod speaks of its own flows
// alone; the stack knows the packet as it had it.
func (n *Node) quoted(in In, v *view, q *quote) *Row {
	key := q.Reverse()
	from := n.generation(key.Src)
	if pod, ok := n.Pods[v.Src]; ok && pod.Generation != from {
		return nil
	}
	if from != 0 && (in.Hook == FromUplink || in.Hook == FromHost) {
		return nil // a pod's packets come from the pod
	}
	sides := []Side{Fast}
	switch in.Hook {
	case ToPod:
		sides = []Side{ToPodSide, Fast}
	case ToUplink, ToTunnel:
		sides = []Side{ToWireSide, Fast}
	}
	for _, key.Side = range sides {
		if r := n.Rows[key]; r != nil && r.From == from && !n.expired(r, q.Proto) {
			return r
		}
	}
	return nil
}

// rewriteQuote makes the quoted packet the reverse of what the row makes of its own. Its
// checksums stay as right as they were, as far as they are quoted.
func (q *quote) rewriteQuote(b []byte, r *Row) (loose [4]int) {
	was := Row{Src: r.Dst, Dst: r.Src, Sport: r.Dport, Dport: r.Sport}
	moved := q.view
	moved.l4 -= q.base
	loose = moved.rewrite(b[q.base:], &was, false)
	for i, at := range loose[:2] {
		loose[i] = 0
		if at != 0 {
			loose[2+i] = at + q.base
		}
	}
	return loose
}
