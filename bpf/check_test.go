// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const redirectStamp = 0xc1e7

// passed: the stack gets the packet as it came.
func (n *node) passed(out packet.Out, in packet.Packet) {
	n.Helper()
	n.verdict(out, packet.Unspec)
	n.same(out.Frame[packet.EthLen:], in.Frame()[packet.EthLen:])
}

// delivered: the packet goes to pod p and says what want says.
func (n *node) delivered(out packet.Out, p pod, want packet.Packet) {
	n.Helper()
	n.redirected(out)
	n.same(out.Frame, want.Link(p.Peer, p.MAC).Frame())
}

// toWire: the packet leaves by the uplink; the kernel fills in the neighbour.
func (n *node) toWire(out packet.Out, want packet.Packet) {
	n.Helper()
	n.redirected(out)
	n.same(out.Frame[packet.EthLen:], want.Frame()[packet.EthLen:])
}

// toHost: the packet enters lo as if it had never left.
func (n *node) toHost(out packet.Out, want packet.Packet) {
	n.Helper()
	n.redirected(out)
	n.same(out.Frame, want.Link(packet.MAC{}, packet.MAC{}).Frame())
}

// dropped: the packet is gone, and counted once under that reason and no other.
func (n *node) dropped(out packet.Out, ifindex int, hook bpf.DatapathHook, reason bpf.DatapathDropReason) {
	n.Helper()
	n.verdict(out, packet.Shot)
	got := n.Object.Drops(n)
	want := map[bpf.DatapathCounterKey]bpf.DatapathCounter{
		{Ifindex: uint32(ifindex), Hook: hook, Reason: reason}: {Packets: 1, Bytes: uint64(len(out.Frame))}}
	if !reflect.DeepEqual(got, want) {
		n.Errorf("counters: got %+v, want %+v", got, want)
	}
}

// notDropped: no packet of the test was dropped.
func (n *node) notDropped() {
	n.Helper()
	if got := n.Object.Drops(n); len(got) > 0 {
		n.Errorf("counters: got %+v, want none", got)
	}
}

func (n *node) verdict(out packet.Out, want int32) {
	n.Helper()
	if out.Verdict != want {
		n.Errorf("verdict: got %d, want %d", out.Verdict, want)
	}
}

// redirected: the bytes are good. Where to is TestPrivilegedRedirectTargets' question.
func (n *node) redirected(out packet.Out) {
	n.Helper()
	n.verdict(out, packet.Redirect)
	if err := packet.Verify(out.Frame); err != nil {
		n.Error(err)
	}
}

func (n *node) same(got, want []byte) {
	n.Helper()
	if !bytes.Equal(got, want) {
		n.Errorf("bytes: got\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
}

// rows is what a table of flows holds.
type rows map[bpf.DatapathTuple]bpf.DatapathFlow

func (n *node) flowRows(m *ebpf.Map) rows {
	n.Helper()
	return packet.Rows[bpf.DatapathTuple, bpf.DatapathFlow](n, m)
}

// tables checks all of halfopen and flows. A row wanted with no seen_ns has to be one that the
// run behind out wrote or refreshed.
func (n *node) tables(out packet.Out, half, full rows) {
	n.Helper()
	n.table("halfopen", n.maps.Halfopen, out, half)
	n.table("flows", n.maps.Flows, out, full)
}

func (n *node) table(title string, m *ebpf.Map, out packet.Out, want rows) {
	n.Helper()
	got := n.flowRows(m)
	for key, row := range got {
		w, ok := want[key]
		if !ok {
			n.Errorf("%s: unexpected %s: %s", title, name(key), show(row))
			continue
		}
		if w.SeenNs == 0 {
			if row.SeenNs < out.Began || row.SeenNs > out.Ended {
				n.Errorf("%s: %s: seen at %d, the run was from %d to %d", title, name(key), row.SeenNs, out.Began, out.Ended)
			}
			w.SeenNs = row.SeenNs
		}
		if row != w {
			n.Errorf("%s: %s:\ngot  %s\nwant %s", title, name(key), show(row), show(w))
		}
	}
	for key := range want {
		if _, ok := got[key]; !ok {
			n.Errorf("%s: no %s", title, name(key))
		}
	}
}

// row checks one row, in whichever table it is.
func (n *node) row(out packet.Out, key bpf.DatapathTuple, want bpf.DatapathFlow) {
	n.Helper()
	for _, m := range []*ebpf.Map{n.maps.Flows, n.maps.Halfopen} {
		got, ok := packet.Get[bpf.DatapathFlow](n, m, key)
		if !ok {
			continue
		}
		if want.SeenNs == 0 && got.SeenNs >= out.Began && got.SeenNs <= out.Ended {
			got.SeenNs = 0
		}
		if got == want {
			return
		}
		n.Logf("%v: got %s", m, show(got))
	}
	n.Errorf("no %s: %s", name(key), show(want))
}

// flow says what both rows of a flow should be.
type flow struct {
	in, out         packet.Packet // the request as it comes and as it leaves
	from, to        uint64        // generations
	action, reply   bpf.DatapathFlowAction
	hostport        bool
	masked          bool                  // masqueraded
	state, stateOut bpf.DatapathFlowState // of the request's and of the reply's row
	seq             uint32
	seen            uint64 // 0: whenever the run was
	side            bpf.DatapathSide
}

func (f flow) keys() (request, reply bpf.DatapathTuple) {
	request, reply = f.in.Tuple(), f.out.Reverse().Tuple()
	request.Side = f.side
	return request, reply
}

func (f flow) rows() rows {
	request, reply := f.keys()
	flags := bpf.DatapathFlowFlag(0)
	if f.in.Tuple() != f.out.Tuple() {
		flags |= bpf.DatapathFlowFlagFLOW_TRANSLATE
	}
	if f.masked {
		flags |= flowMasquerade | bpf.DatapathFlowFlagFLOW_TRANSLATE
	}
	if f.hostport {
		flags |= bpf.DatapathFlowFlagFLOW_HOSTPORT
	}
	there, back := f.out.Tuple(), f.in.Reverse().Tuple()
	return rows{
		request: {Src: there.Src, Dst: there.Dst, Sport: there.Sport, Dport: there.Dport, Action: f.action, Flags: flags,
			SrcGeneration: f.from, DstGeneration: f.to, SeenNs: f.seen, State: f.state, TcpSeq: f.seq},
		reply: {Src: back.Src, Dst: back.Dst, Sport: back.Sport, Dport: back.Dport, Action: f.reply,
			Flags: flags | bpf.DatapathFlowFlagFLOW_REPLY, SrcGeneration: f.to, DstGeneration: f.from, SeenNs: f.seen,
			State: f.stateOut},
	}
}

// put writes both rows, as seen some time ago.
func (n *node) put(m *ebpf.Map, f flow, ago time.Duration) {
	n.Helper()
	f.seen = packet.Now() - uint64(ago)
	for key, row := range f.rows() {
		packet.Put(n, m, key, row)
	}
}

// age makes every row of a table older.
func (n *node) age(m *ebpf.Map, by time.Duration) {
	n.Helper()
	for key, row := range n.flowRows(m) {
		row.SeenNs -= uint64(by)
		packet.Put(n, m, key, row)
	}
}

// name and show are for messages.
func name(t bpf.DatapathTuple) string {
	return fmt.Sprintf("proto %d side %d %s -> %s", t.Proto, t.Side, end(t.Src, t.Sport), end(t.Dst, t.Dport))
}

func show(f bpf.DatapathFlow) string {
	return fmt.Sprintf("%s -> %s action %d flags %#x generations %d, %d seen %d state %#x seq %d", end(f.Src, f.Sport),
		end(f.Dst, f.Dport), f.Action, f.Flags, f.SrcGeneration, f.DstGeneration, f.SeenNs, f.State, f.TcpSeq)
}

func end(a bpf.DatapathAddr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Ip).Unmap(), port)
}

// union joins tables.
func union(tables ...rows) rows {
	all := rows{}
	for _, t := range tables {
		for k, v := range t {
			all[k] = v
		}
	}
	return all
}
