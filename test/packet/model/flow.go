// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// How far a client's acknowledgement may be from what the pod last sent, to prove that
// the client hears the pod: just ahead after a SYN, either way in mid-stream.
const (
	proofAhead = 65536
	proofMid   = 1 << 24
)

func (r *Row) closed() bool { return r.Reset || r.Fin && r.PeerFin }

func (r *Row) unproved() bool { return r.Half || r.Reopened }

func (n *Node) expired(r *Row, proto uint8) bool {
	t := n.Timeouts
	limit := t.Other
	switch {
	case proto == tcp && r.closed() && r.Masked:
		limit = t.MaskedClosed
	case proto == tcp && r.closed():
		limit = t.Closed
	case proto == tcp && r.unproved():
		limit = t.SYN
	case proto == tcp:
		limit = t.TCP
	case r.unproved():
		limit = t.Unanswered
	case proto == udp:
		limit = t.UDP
	}
	return r.Age > limit
}

// peerKey is the key of the flow's other row: what the other end sees, turned round.
func peerKey(r *Row, proto uint8) Tuple {
	key := Tuple{Src: r.Dst, Dst: r.Src, Sport: r.Dport, Dport: r.Sport, Proto: proto}
	if r.Action == GoStack && r.Reply { // where the stack's request passes us
		key.Side = ToPodSide
		if r.Masked {
			key.Side = ToWireSide
		}
	}
	return key
}

// forget takes both rows of a flow.
func (n *Node) forget(key Tuple, r *Row) {
	if !n.alone(key, r) {
		delete(n.Rows, peerKey(r, key.Proto))
	}
	delete(n.Rows, key)
}

// alone: has the request's row lost its reply's? The tuple may be another flow's by now.
func (n *Node) alone(key Tuple, r *Row) bool {
	if r.Reply {
		return false
	}
	back := n.Rows[peerKey(r, key.Proto)]
	return back == nil || back.Src != key.Dst || back.Dst != key.Src || back.Sport != key.Dport || back.Dport != key.Sport
}

func (n *Node) write(key Tuple, r Row) {
	r.Half, r.Age = true, 0
	n.Rows[key] = &r
	n.Opened = append(n.Opened, key)
}

// live is the packet's row, if the pods at its ends are those that it was made for.
func (n *Node) live(v *view, from uint64) *Row {
	r := n.find(v, from)
	if r == nil || r.Action != GoPod && !r.Masked {
		return r
	}
	if pod, ok := n.Pods[r.Dst]; pod.Generation != r.To || !ok && r.Action == GoPod {
		return nil
	}
	return r
}

// find is the packet's row, if it counts.
func (n *Node) find(v *view, from uint64) *Row {
	r := n.Rows[v.Tuple]
	if r == nil || r.From != from || n.expired(r, v.Proto) {
		return nil
	}
	// A SYN on a closed flow begins a new one. A request whose reply's row was evicted
	// (looked for once a second) is no flow any more.
	orphan := r.Age > time.Second && n.alone(v.Tuple, r)
	if v.syn() && r.closed() || orphan {
		v.hint = r.Sport
		if v.syn() && r.closed() && !r.Half {
			v.closed = r // until it is known what takes its place
			return nil
		}
		n.forget(v.Tuple, r)
		return nil
	}
	return r
}

func (n *Node) forgetClosed(v *view) {
	if v.closed != nil {
		n.forget(v.Tuple, v.closed)
		v.closed = nil
	}
}

// touch notes what the packet says of its flow.
func (n *Node) touch(v *view, r *Row) {
	key := peerKey(r, v.Proto)
	peer := n.Rows[key]
	if r.Age > time.Second {
		r.Age = 0
		if peer != nil {
			peer.Age = 0
		}
	}
	if v.flags&(fin|rst) != 0 {
		closing(v, r, peer)
	}
	if r.unproved() && proves(v, r, peer) && halves(r, peer) {
		r.Half, peer.Half, r.Reopened, peer.Reopened = false, false, false, false
	}
}

// halves: are both rows those of one half-open flow?
func halves(r, peer *Row) bool {
	return peer != nil && peer.Half == r.Half && peer.Reopened == r.Reopened
}

func closing(v *view, r, peer *Row) {
	reset := v.flags&rst != 0
	r.Age = 0
	r.Reset = r.Reset || reset
	r.Fin = r.Fin || !reset
	if peer != nil {
		peer.Age = 0
		peer.Reset = peer.Reset || reset
		peer.PeerFin = peer.PeerFin || !reset
	}
}

// proves: does this packet of a half-open flow show that the other end is there? The client
// speaks again after an answer; of TCP, it acknowledges what the pod sent.
func proves(v *view, r, peer *Row) bool {
	if v.Proto == tcp && v.kind == later {
		return false // says nothing of sequence numbers
	}
	if r.Reply {
		if halves(r, peer) && v.flags&rst == 0 {
			peer.Seq, peer.Answered = v.seq, true
		}
		return false
	}
	if !r.Answered || v.Proto != tcp {
		return r.Answered
	}
	if v.flags&ack == 0 || v.flags&rst != 0 {
		return false
	}
	ahead := int32(v.ack - r.Seq)
	if r.Mid {
		return ahead >= -proofMid && ahead <= proofMid
	}
	return ahead >= 0 && ahead <= proofAhead
}
