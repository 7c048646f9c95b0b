// SPDX-License-Identifier: Apache-2.0

package model

func (n *Node) generation(a Addr) uint64 { return n.Pods[a].Generation }

// stackToPod: what the stack sends to a pod must be answered to the stack.
func (n *Node) stackToPod(in In, v *view) step {
	if v.unreadable {
		return n.errorAbout(in, v)
	}
	if v.kind == later || v.icmp() {
		return toStack
	}
	if v.Proto == tcp || v.Proto == udp {
		return n.stackPorts(v)
	}
	n.keepForStack(v)
	return toStack
}

// stackPorts: a packet whose reply tuple a fast flow holds gets another client port, and
// what follows it gets the same. A segment in mid-stream that meets such a flow has lost
// its row, and is reset in the pod for having another port.
func (n *Node) stackPorts(v *view) step {
	v.Side = ToPodSide
	r := n.Rows[v.Tuple]
	if r != nil && (r.To != n.generation(v.Dst) || n.expired(r, v.Proto)) {
		r = nil
	}
	if r != nil && v.syn() && r.closed() {
		v.hint = r.Sport
		n.forget(v.Tuple, r)
		r = nil
	}
	if r == nil {
		if v.Proto == tcp && !v.syn() && v.flags&(syn|rst) != 0 {
			return toStack
		}
		if s := n.stackOpen(v); s != nil {
			return *s
		}
		r = n.Rows[v.Tuple]
	}
	n.touch(v, r)
	return step{verdict: Stack, loose: v.rewrite(n.out, r, false)}
}

func (n *Node) stackOpen(v *view) *step {
	r := Row{
		Src: v.Src, Dst: v.Dst, Sport: v.Sport, Dport: v.Dport, Action: GoStack, Translate: true,
		From: n.generation(v.Src), To: n.generation(v.Dst), Mid: v.Proto == tcp && !v.syn(),
	}
	reply := n.Rows[v.Reverse()]
	farAnswer := reply != nil && reply.Action == GoWire && !reply.Reply   // by a device of nobody's
	if reply == nil || farAnswer || v.kind != whole && !reply.Translate { // a piece of a direct flow is left to the stack
		return &toStack
	}
	leadsBack := reply.Action == GoStack && reply.Dport == v.Sport && reply.Dst == v.Src
	if v.hint != 0 {
		r.Sport = v.hint
	} else if leadsBack || reply.From != r.To || reply.To != r.From || n.expired(reply, v.Proto) {
		return &toStack
	}
	if !n.claim(v, r, GoStack, v.hint != 0) {
		s := drop(PortsExhausted)
		return &s
	}
	return nil
}

// keepForStack gives the answer to the stack, unless the packet itself answers what was
// masqueraded.
func (n *Node) keepForStack(v *view) {
	masked := v.Reverse()
	masked.Side = ToWireSide
	if r := n.Rows[masked]; r == nil || n.expired(r, v.Proto) {
		n.leaveToStack(v.Reverse())
	}
}

// leaveToStack: packets of this key are the stack's, unless a live row leads elsewhere.
func (n *Node) leaveToStack(key Tuple) {
	from, to := n.generation(key.Src), n.generation(key.Dst)
	if r := n.Rows[key]; r != nil && r.From == from && !n.expired(r, key.Proto) {
		if r.Action == GoStack {
			r.Age = 0
		}
		return
	}
	n.write(key, Row{
		Src: key.Src, Dst: key.Dst, Sport: key.Sport, Dport: key.Dport, Action: GoStack, Reply: true, From: from, To: to,
	})
}

// stackToWire: what a pod sends is masqueraded; what leaves with the number of a hostPort
// for its source port is answered to the stack, not captured.
// Into a tunnel strangers are masqueraded, and no pods.
func (n *Node) stackToWire(in In, v *view, tunnel bool) step {
	if v.unreadable {
		return n.errorAbout(in, v)
	}
	pod, ours := n.Pods[v.Src]
	orphan, masquerades := false, false
	if ours {
		var s step
		if s, orphan = n.lateAnswer(in, v, pod.Generation); s.verdict != pass {
			return s
		}
		masquerades = pod.Masquerade && !tunnel
	} else if v.strange = tunnel && n.strange(v); v.strange {
		orphan = n.orphan(in, v)
	} else if v.kind == later {
		return toStack
	}
	far := ours && v.Proto == tcp && n.Remote(v.Dst).Is
	if far || masquerades || v.strange || !ours && v.Sport != 0 && n.pooled(v.Sport) {
		if s := n.masquerade(v, pod.Generation, masquerades, orphan); s.verdict != pass {
			return s
		}
	}
	v.Side = Fast
	if ours {
		return toStack
	}
	return n.guard(v)
}

func (n *Node) guard(v *view) step {
	if v.Proto != udp && !v.syn() || !n.called(Tuple{Dst: v.Src, Dport: v.Sport, Proto: v.Proto}) {
		return toStack
	}
	n.leaveToStack(v.Reverse())
	return toStack
}
