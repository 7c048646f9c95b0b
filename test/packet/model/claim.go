// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// lapsed: is the claim on a reply's tuple over? A masqueraded flow's stays after its pod is
// gone, since its peer outside does not know.
func (n *Node) lapsed(r *Row, proto uint8) bool {
	gone := r.Masked && r.To != 0 && n.generation(r.Dst) != r.To
	return n.expired(r, proto) || gone && r.Age > n.Timeouts.MaskedClosed
}

// held: is the row a claim that somebody else has on a reply's tuple?
func (n *Node) held(r, want *Row, proto uint8) bool {
	if r == nil || r.From != want.From || n.lapsed(r, proto) {
		return false
	}
	if r.Dst != want.Dst {
		return true
	}
	if r.To != want.To { // of the pod that had the client's address before
		return r.Masked
	}
	return r.Action != want.Action || r.Sport != want.Sport || r.Dport != want.Dport || r.Src != want.Src
}

// free: may the flow have the reply's tuple? A masqueraded one may not have a hostPort's
// number.
func (n *Node) free(key Tuple, want *Row) bool {
	if n.held(n.Rows[key], want, key.Proto) {
		return false
	}
	return !want.Masked || !n.called(key)
}

func (n *Node) called(t Tuple) bool {
	_, own := n.Hostports[Service{t.Dst, t.Dport, t.Proto}]
	_, any := n.Hostports[Service{Addr{}, t.Dport, t.Proto}]
	return own || any
}

// allowed: is the port one of those that a changed one may be? A connection that lost its
// masqueraded port gets one of nobody's.
func (n *Node) allowed(port uint16, masked, mid bool) bool {
	if !masked {
		return port >= 1024
	}
	return n.pooled(port) || mid && port >= 1024 && port < 20000
}

// pooled: is the port one of those for masqueraded flows?
func (n *Node) pooled(port uint16) bool {
	for _, r := range n.Pool {
		if port >= r.First && port <= r.Last {
			return true
		}
	}
	return false
}

// claim reserves the reply's tuple for a request and writes both rows. The client's port
// stays unless somebody else has that tuple, or may not stay at all; which other one it
// gets is the datapath's choice among the free ones.
func (n *Node) claim(v *view, request Row, back Action, mayStay bool) bool {
	reply := Row{
		Src: v.Dst, Dst: v.Src, Sport: v.Dport, Dport: v.Sport, Action: back, Reply: true, Hostport: request.Hostport,
		Masked: request.Masked, From: request.To, To: request.From, Mid: request.Mid,
	}
	key := peerKey(&request, v.Proto)
	if n.again(v, key, request, reply) {
		return true
	}
	n.forgetClosed(v)
	if !mayStay || !n.free(key, &reply) {
		if !v.changeable() {
			return false
		}
		port, ok := n.Chosen(v.Tuple)
		if !ok {
			return false
		}
		request.Sport, request.Translate = port, true
		key = peerKey(&request, v.Proto)
		if !n.allowed(port, request.Masked, request.Mid) || !n.free(key, &reply) {
			n.Fault = fmt.Errorf("client port %d is not free: %+v", port, n.Rows[key])
		}
	}
	reply.Translate = request.Translate
	n.write(key, reply)
	n.write(v.Tuple, request)
	return true
}

// again: a closed flow begins anew where its rows are, if new ones would be the same.
func (n *Node) again(v *view, key Tuple, request, reply Row) bool {
	reply.Translate = request.Translate
	back := n.Rows[key]
	if v.closed == nil || back == nil || n.expired(back, v.Proto) || !same(v.closed, &request) || !same(back, &reply) {
		return false
	}
	for _, r := range []*Row{v.closed, back} {
		r.Answered, r.Fin, r.PeerFin, r.Reset, r.Mid, r.Seq, r.Age = false, false, false, false, false, 0, 0
		r.Reopened = true
	}
	v.closed = nil
	return true
}

// same: in flows, and what becomes of a packet is.
func same(row, want *Row) bool {
	kept := *want
	kept.Answered, kept.Fin, kept.PeerFin, kept.Reset, kept.Mid = row.Answered, row.Fin, row.PeerFin, row.Reset, row.Mid
	kept.Seq, kept.Age, kept.Reopened = row.Seq, row.Age, row.Reopened
	return *row == kept
}
