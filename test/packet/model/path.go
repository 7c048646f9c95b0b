// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// step is what a step says of a packet; a drop has a reason.
type step struct {
	verdict Verdict
	reason  Reason
	loose   [4]int
}

// pass is no verdict: the packet goes on.
const pass Verdict = 0

var toStack = step{verdict: Stack}

// or is the step, or the verdict where it has none.
func (s step) or(v Verdict) step {
	if s.verdict == pass {
		s.verdict = v
	}
	return s
}

// and is what becomes of a packet that was changed already.
func (s step) and(next step) step {
	for i, at := range s.loose {
		if at != 0 {
			next.loose[i] = at
		}
	}
	return next
}

func drop(why Reason) step { return step{verdict: Shot, reason: why} }

// Packet is what a packet becomes.
func (n *Node) Packet(in In) Out {
	n.out = append(n.out[:0], in.Frame...)
	v, ok := parse(n.out)
	s := toStack
	if ok {
		s = n.hook(in, &v)
	}
	if s.verdict == Shot {
		c := n.Drops[Drop{in.Device, in.Hook, s.reason}]
		c.Packets++
		c.Bytes += uint64(len(in.Frame))
		n.Drops[Drop{in.Device, in.Hook, s.reason}] = c
	}
	return Out{Verdict: s.verdict, Frame: n.out, Loose: s.loose, Any: v.anyCRC}
}

func (n *Node) hook(in In, v *view) step {
	switch in.Hook {
	case FromPod:
		if n.solicited(in, v) {
			return step{verdict: Redirect}
		}
		generation, s := n.sender(in, v)
		if s.verdict != pass {
			return s
		}
		return s.and(n.forward(in, v, generation))
	case FromUplink:
		if [6]byte(in.Frame) != in.DeviceMAC {
			return toStack // to another host, or to many
		}
		if v.Src.loopback() || v.Dst.loopback() {
			return drop(Loopback)
		}
		return n.forward(in, v, 0)
	case FromHost:
		return n.forward(in, v, 0)
	case ToPod:
		return n.stackToPod(in, v)
	case ToTunnel:
		return n.intoTunnel(in, v)
	default:
		return n.stackToWire(in, v, false)
	}
}

// intoTunnel: what the stack sends to another node, which the device is told. The far end has
// the same address as this one, and takes nothing from itself.
func (n *Node) intoTunnel(in In, v *view) step {
	to := v.Dst
	if !unicast(netip.AddrFrom16(to).Unmap()) {
		return toStack
	}
	s := n.stackToWire(in, v, true)
	if s.verdict == Shot {
		return s
	}
	if !n.Remote(to).Tunnel || v.v6 && to.v4() {
		return drop(NoRemote)
	}
	copy(n.out, n.out[6:12])
	n.out[11] ^= 1
	return s.or(Stack)
}

// far: does a pod begin a connection to another node's?
func (n *Node) far(in In, v *view) bool {
	_, here := n.Pods[v.Dst]
	pod, ok := n.Pods[v.Src]
	if in.Hook != FromPod || !v.syn() || v.kind != whole || v.ttl <= 1 || !ok || here || pod.Chained || !n.Remote(v.Dst).Fast {
		return false
	}
	length := len(in.Frame) - ethernet
	if in.GSOSize > 0 {
		length = in.GSOSize + v.headers
	}
	return length <= n.Route(v.Src, v.Dst)
}

// forward carries the packet of a live row, or of one that it may open.
func (n *Node) forward(in In, v *view, from uint64) step {
	if v.unreadable {
		return n.errorAbout(in, v)
	}
	if v.kind == later && !n.follow(in, v, Fast) {
		return toStack
	}
	r := n.live(v, from)
	if r == nil {
		if s := n.open(in, v, from); s != nil {
			return *s
		}
		r = n.Rows[v.Tuple]
	}
	if v.kind != whole && !r.Translate {
		return toStack // netfilter sees all of a datagram, or nothing
	}
	if v.kind == first && !n.begin(in, v, Fast) {
		return drop(FragmentOrder)
	}
	return n.carry(in, v, r)
}

// open begins a flow: nil, or what becomes of a packet that begins none.
func (n *Node) open(in In, v *view, from uint64) *step {
	defer n.forgetClosed(v)
	return n.openCalled(in, v, from)
}

func (n *Node) openCalled(in In, v *view, from uint64) *step {
	if _, pod := n.Pods[v.Src]; pod && in.Hook == FromUplink {
		return &toStack // a pod of this node does not come by the wire
	}
	if !unicast(netip.AddrFrom16(v.Src).Unmap()) {
		return &toStack // nobody has such an address
	}
	r := Row{Src: v.Src, Dst: v.Dst, Sport: v.Sport, Dport: v.Dport, From: from}
	r.Action = GoPod
	if !n.hostport(in, v, &r) && !n.direct(in, v, &r) {
		if !n.far(in, v) {
			return &toStack
		}
		r.Action = GoWire
	}
	middle := v.Proto == tcp && !v.syn()
	if middle && v.flags&rst != 0 || v.message(0, 129) {
		return &toStack
	}
	r.Mid = middle
	if v.hint != 0 && v.hint != r.Sport {
		r.Sport, r.Translate = v.hint, true
	}
	back := map[Hook]Action{FromPod: GoPod, FromUplink: GoWire, FromHost: GoHost}[in.Hook]
	if !n.claim(v, r, back, true) {
		if v.changeable() {
			s := drop(PortsExhausted)
			return &s
		}
		return &toStack
	}
	return nil
}

// hostport: does the packet call one of the node's ports? Then it goes to the pod's.
func (n *Node) hostport(in In, v *view, r *Row) bool {
	if v.kind == later || v.icmp() || v.Dport == 0 {
		return false
	}
	h, ok := n.Hostports[Service{v.Dst, v.Dport, v.Proto}]
	if !ok {
		h, ok = n.Hostports[Service{Addr{}, v.Dport, v.Proto}]
	}
	to := h.Pod4
	if v.v6 {
		to = h.Pod6
	}
	pod, lives := n.Pods[to]
	if !ok || !lives || pod.Generation != h.Generation {
		return false
	}
	dst := netip.AddrFrom16(v.Dst).Unmap()
	if dst.IsLoopback() && (!h.Loopback || dst != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && dst != netip.IPv6Loopback()) {
		return false
	}
	if n.Excluded(v.Dst) {
		return false
	}
	ofLink := netip.AddrFrom16(v.Src).IsLinkLocalUnicast() && v.v6 || dst.Is6() && dst.IsLinkLocalUnicast()
	if in.Hook != FromHost && (!unicast(dst) || ofLink || !n.Local(v.Src, v.Dst)) {
		return false
	}
	r.Dst, r.Dport, r.To, r.Hostport, r.Translate = to, h.Port, h.Generation, true, true
	if r.From == r.To || r.Src.loopback() { // would be answered past us
		r.Src = gateway(v.v6)
	}
	return true
}

func unicast(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		return b[0] != 0 && b[0] < 224
	}
	return !a.IsMulticast() && !a.IsUnspecified()
}

// direct: is it a pod's own address that is called?
func (n *Node) direct(in In, v *view, r *Row) bool {
	pod, ok := n.Pods[v.Dst]
	if !ok || pod.Chained || in.Hook == FromHost {
		return false
	}
	if v.kind != whole {
		if v.kind == first && pod.Masquerade {
			n.noteRequest(v)
		}
		return false
	}
	r.To = pod.Generation
	return true
}

// carry does what the row says. What the stack has to answer it gets as it came, but a
// hostPort's packet as the pod would have.
func (n *Node) carry(in In, v *view, r *Row) step {
	hop := in.Hook != FromHost && (r.Action == GoPod || r.Action == GoWire)
	if hop && v.ttl <= 1 {
		if r.Action != GoPod || r.From != r.To {
			return n.answered(v, r)
		}
		hop = false // a pod that calls itself passes no router
	}
	length := len(in.Frame) - ethernet
	if in.GSOSize > 0 {
		length = in.GSOSize + v.headers
	}
	pod := n.Pods[r.Dst]
	switch {
	case r.Action == GoPod && length > pod.MTU && in.Hook == FromHost:
		return drop(TooBig)
	case r.Action == GoPod && length > pod.MTU:
		return n.answered(v, r)
	case r.Action == GoWire && length > n.Route(r.Src, r.Dst):
		return toStack
	}
	n.touch(v, r)
	if v.stuck(r) {
		return toStack
	}
	s := step{verdict: Redirect, loose: v.rewrite(n.out, r, hop)}
	switch r.Action {
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

// answered: the stack says what is wrong with the packet.
func (n *Node) answered(v *view, r *Row) step {
	if !r.Hostport || r.Reply {
		return toStack
	}
	return step{verdict: Stack, loose: v.rewrite(n.out, r, false)}
}
