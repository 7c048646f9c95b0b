// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

func tupleRow(t model.Tuple) bpf.DatapathTuple {
	return bpf.DatapathTuple{Src: bpf.DatapathAddr{Ip: t.Src}, Dst: bpf.DatapathAddr{Ip: t.Dst}, Sport: t.Sport,
		Dport: t.Dport, Proto: t.Proto, Side: bpf.DatapathSide(t.Side)}
}

func tupleOf(t bpf.DatapathTuple) model.Tuple {
	return model.Tuple{Src: t.Src.Ip, Dst: t.Dst.Ip, Sport: t.Sport, Dport: t.Dport, Proto: t.Proto, Side: model.Side(t.Side)}
}

// bits are the members of a model's row that are bits of the datapath's.
func rowBits(r *model.Row) (flags map[bpf.DatapathFlowFlag]*bool, states map[bpf.DatapathFlowState]*bool) {
	return map[bpf.DatapathFlowFlag]*bool{
			bpf.DatapathFlowFlagFLOW_TRANSLATE: &r.Translate,
			bpf.DatapathFlowFlagFLOW_REPLY:     &r.Reply,
			bpf.DatapathFlowFlagFLOW_HOSTPORT:  &r.Hostport,
			flowMasquerade:                     &r.Masked,
		}, map[bpf.DatapathFlowState]*bool{
			bpf.DatapathFlowStateFLOW_ANSWERED: &r.Answered,
			bpf.DatapathFlowStateFLOW_FIN_SELF: &r.Fin,
			bpf.DatapathFlowStateFLOW_FIN_PEER: &r.PeerFin,
			bpf.DatapathFlowStateFLOW_RESET:    &r.Reset,
			bpf.DatapathFlowStateFLOW_TCP_MID:  &r.Mid,
			bpf.DatapathFlowStateFLOW_REOPENED: &r.Reopened,
		}
}

func flowRow(r model.Row, now uint64) bpf.DatapathFlow {
	row := bpf.DatapathFlow{Src: bpf.DatapathAddr{Ip: r.Src}, Dst: bpf.DatapathAddr{Ip: r.Dst}, Sport: r.Sport, Dport: r.Dport,
		Action: bpf.DatapathFlowAction(r.Action), SrcGeneration: r.From, DstGeneration: r.To, TcpSeq: r.Seq,
		SeenNs: now - uint64(r.Age)}
	flags, states := rowBits(&r)
	for bit, set := range flags {
		if *set {
			row.Flags |= bit
		}
	}
	for bit, set := range states {
		if *set {
			row.State |= bit
		}
	}
	return row
}

// flowOf is the row without its age.
func flowOf(f bpf.DatapathFlow, half bool) model.Row {
	r := model.Row{Src: f.Src.Ip, Dst: f.Dst.Ip, Sport: f.Sport, Dport: f.Dport, Action: model.Action(f.Action),
		From: f.SrcGeneration, To: f.DstGeneration, Seq: f.TcpSeq, Half: half}
	flags, states := rowBits(&r)
	for bit, set := range flags {
		*set = f.Flags&bit != 0
	}
	for bit, set := range states {
		*set = f.State&bit != 0
	}
	return r
}

// deal fills both nodes' tables with random flows: live, half open, closed, old, of a
// former pod, with one row lost.
func (s *stage) deal(r *rand.Rand, flows int) {
	s.wipe()
	s.Rows, s.Fragments = map[model.Tuple]*model.Row{}, map[model.Datagram]model.Begun{}
	s.Opened, s.Fault = s.Opened[:0], nil
	clear(s.Drops)
	for range flows {
		s.dealFlow(r)
	}
	s.began = packet.Now()
	for _, half := range []bool{false, true} {
		var keys []bpf.DatapathTuple
		var values []bpf.DatapathFlow
		for _, key := range s.Opened {
			if row := s.Rows[key]; row.Half == half {
				keys, values = append(keys, tupleRow(key)), append(values, flowRow(*row, s.began))
			}
		}
		if len(keys) == 0 {
			continue
		}
		if n, err := s.flowTable(half).BatchUpdate(keys, values, nil); err != nil || n != len(keys) {
			s.Fatalf("write %d rows: %d, %v", len(keys), n, err)
		}
	}
}

func (s *stage) flowTable(half bool) *ebpf.Map {
	if half {
		return s.maps.Halfopen
	}
	return s.maps.Flows
}

func (s *stage) dealFlow(r *rand.Rand) {
	f := families[r.IntN(2)]
	proto := []uint8{packet.ProtoTCP, packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDP, echo.Protocol(f.node.Is4()),
		packet.ProtoSCTP, packet.ProtoGRE}[r.IntN(7)]
	v6 := 1
	if f.node.Is4() {
		v6 = 0
	}
	to := r.IntN(len(stagePods))
	pod := model.AddrOf(s.pods[to].addrs[v6])
	caller := model.AddrOf(randomAddr(r, f))
	row := model.Row{Src: caller, Dst: pod, To: stagePods[to].generation, Action: model.GoPod, Half: r.IntN(3) == 0}
	back := model.GoWire
	switch r.IntN(8) {
	case 0: // another pod calls
		from := r.IntN(len(stagePods))
		caller = model.AddrOf(s.pods[from].addrs[v6])
		row.Src, row.From, back = caller, stagePods[from].generation, model.GoPod
	case 1: // the host
		caller = model.AddrOf([]netip.Addr{f.node, f.node2, f.loopback}[r.IntN(3)])
		row.Src, back = caller, model.GoHost
	case 2: // the stack
		row.Action, back = model.GoStack, model.GoStack
	}
	if r.IntN(5) == 0 {
		s.dealMasked(r, f, proto, to)
		return
	}
	row.Sport, row.Dport = randomPort(r), randomPort(r)
	key := model.Tuple{Src: caller, Dst: model.AddrOf(randomAddr(r, f)), Sport: randomPort(r), Dport: randomPort(r), Proto: proto}
	if row.Action == model.GoStack {
		key.Side = model.ToPodSide
		key.Dst = pod
	}
	if r.IntN(20) == 0 { // which is no port, but may be said
		key.Sport, key.Dport = 0, 0
	}
	switch {
	case proto == packet.ProtoGRE:
		row.Sport, row.Dport, key.Sport, key.Dport = 0, 0, 0, 0
	case r.IntN(4) == 0:
		row.Sport, row.Dport = key.Sport, key.Dport
	}
	if proto == echo.Protocol(f.node.Is4()) {
		row.Dport, key.Dport = 0, 0
	}
	if back == model.GoWire && r.IntN(4) == 0 { // addresses that no row of the caller's would have
		row.Src = model.AddrOf(randomAddr(r, f))
	}
	s.dealRows(r, key, row, back)
}

// dealMasked writes a masqueraded flow of a pod's.
func (s *stage) dealMasked(r *rand.Rand, f family, proto uint8, from int) {
	node, _ := s.Uplink(model.AddrOf(f.client))
	key := model.Tuple{Src: model.AddrOf(s.pods[from].addrs[side(f)]), Dst: model.AddrOf(randomAddr(r, f)), Sport: randomPort(r),
		Dport: randomPort(r), Proto: proto, Side: model.ToWireSide}
	row := model.Row{Src: node, Dst: key.Dst, Sport: uint16(32768 + r.IntN(1000)), Dport: key.Dport, Action: model.GoStack,
		Masked: true, From: stagePods[from].generation, Half: r.IntN(3) == 0}
	switch proto {
	case packet.ProtoGRE:
		key.Sport, key.Dport, row.Sport, row.Dport = 0, 0, 0, 0
	case echo.Protocol(f.node.Is4()):
		key.Dport, row.Dport = 0, 0
	}
	s.dealRows(r, key, row, model.GoStack)
}

func randomPort(r *rand.Rand) uint16 {
	if r.IntN(4) == 0 {
		return []uint16{0, 80, 443, 8080, 65535}[r.IntN(5)]
	}
	return uint16(r.Uint32())
}

// rowAges lie so that no row comes to a limit (timeouts) while a round runs.
var rowAges = []time.Duration{0, 0, 0, 0, 1500 * time.Millisecond, 6050 * time.Millisecond, 7050 * time.Millisecond, 11 * time.Second}

// dealRows writes both rows of a flow, in some state.
func (s *stage) dealRows(r *rand.Rand, key model.Tuple, row model.Row, back model.Action) {
	row.Hostport = r.IntN(2) == 0 && !row.Masked
	row.Translate = row.Masked || row.Src != key.Src || row.Dst != key.Dst || row.Sport != key.Sport || row.Dport != key.Dport
	row.Age = rowAges[r.IntN(len(rowAges))]
	row.Answered = row.Half && r.IntN(2) == 0
	switch {
	case key.Proto != packet.ProtoTCP:
	case row.Half:
		row.Mid, row.Seq = r.IntN(4) == 0, r.Uint32()
	default:
		row.Reopened = r.IntN(6) == 0
		row.Answered = row.Reopened && r.IntN(2) == 0
		row.Fin, row.PeerFin, row.Reset = r.IntN(6) == 0, r.IntN(6) == 0, r.IntN(12) == 0
	}
	reply := model.Row{Src: key.Dst, Dst: key.Src, Sport: key.Dport, Dport: key.Sport, Action: back, Reply: true,
		Translate: row.Translate, Hostport: row.Hostport, Masked: row.Masked, From: row.To, To: row.From, Half: row.Half, Age: row.Age,
		Fin: row.PeerFin, PeerFin: row.Fin, Reset: row.Reset, Mid: row.Mid,
		Reopened: row.Reopened}
	replyKey := model.Tuple{Src: row.Dst, Dst: row.Src, Sport: row.Dport, Dport: row.Sport, Proto: key.Proto}
	switch r.IntN(16) {
	case 0:
		row.To, reply.From = row.To-1, reply.From-1
	case 1:
		row.From, reply.To = row.From+1, reply.To+1
	}
	lost := r.IntN(12)
	if lost != 0 {
		s.put1(key, row)
	}
	if lost != 1 {
		s.put1(replyKey, reply)
	}
}

func (s *stage) put1(key model.Tuple, row model.Row) {
	if s.Rows[key] == nil {
		s.Rows[key] = &row
		s.Opened = append(s.Opened, key)
	}
}
