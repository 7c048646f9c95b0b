// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

// hooks are the programs, each with a packet that it has nothing to do with.
var hooks = map[string]func(*node, packet.Packet) packet.Out{
	"from_pod":    func(n *node, p packet.Packet) packet.Out { return n.fromPod(n.a, p) },
	"to_pod":      func(n *node, p packet.Packet) packet.Out { return n.toPod(n.b, p) },
	"from_uplink": (*node).fromUplink,
	"to_uplink":   (*node).toUplink,
	"from_host":   (*node).fromHost,
}

// The object passes the verifier, where it can ask conntrack and read kernel memory, and
// where it cannot.
func TestPrivilegedEveryProgramLoads(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, has := range []uint8{0, 1} {
		o, err := packet.Load(func(spec *ebpf.CollectionSpec) {
			if has == 0 {
				_ = spec.Variables[bpf.DatapathVarHaveConntrack].Set(has)
				_ = spec.Variables[bpf.DatapathVarHaveProbeRead].Set(has)
			}
		})
		if err != nil {
			t.Fatalf("%+v", err)
		}
		defer o.Close()
		want := slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(hooks)), "from_socket", "from_tunnel", "to_tunnel")))
		if got := slices.Sorted(maps.Keys(o.Programs)); !slices.Equal(got, want) {
			t.Errorf("programs: got %v, want %v", got, want)
		}
		for name, prog := range o.Programs {
			info, err := prog.Info()
			if err != nil {
				t.Fatal(err)
			}
			if prog.Type() != ebpf.SchedCLS && name != "from_socket" {
				t.Errorf("%s: type %s", name, prog.Type())
			}
			if n, ok := info.VerifiedInstructions(); ok {
				t.Logf("%s: %d verified instructions (conntrack %d)", name, n, has)
			}
		}
	}
}

// What is no IP, or IP that is nobody's business here, goes to the stack untouched.
func TestPrivilegedNotOurs(t *testing.T) {
	n := newNode(t)
	for name, hook := range hooks {
		for _, f := range families {
			p := between(f.a, f.client, udp)
			out := hook(n, p)
			n.passed(out, p)
			n.tables(out, nil, nil)
		}
		frame := between(v4.a, v4.client, udp).Link(n.a.MAC, n.a.Peer).Frame()
		frame[12], frame[13] = 0x08, 0x06 // ARP
		out := n.run(name, n.a.Device, frame)
		n.verdict(out, packet.Unspec)
		n.same(out.Frame, frame)
	}
	n.notDropped()
}

// A packet with the stamp has been dealt with, whatever it looks like: here a SYN from
// the stack that would have to change its port, or a datagram that makes a row.
func TestPrivilegedStamp(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		live := flow{in: between(f.client, f.node, syn), out: between(f.client, f.a, syn), to: genA,
			action: bpf.DatapathFlowActionFLOW_TO_POD, reply: bpf.DatapathFlowActionFLOW_TO_WIRE, hostport: true}
		n.put(n.maps.Flows, live, 0)
		before := n.flowRows(n.maps.Flows)
		n.hostport(f.node, 80, packet.ProtoUDP, 80)

		toPod := between(f.client, f.a, syn)
		toWire := between(f.node, f.client, udp).From(f.node, 80)
		for _, in := range []packet.In{
			{Program: "to_pod", Device: n.a.Index, Frame: toPod.Link(n.a.Peer, n.a.MAC).Frame(), Stamp: redirectStamp},
			{Program: "to_uplink", Device: n.uplink.Index, Frame: toWire.Frame(), Stamp: redirectStamp},
		} {
			out := n.Run(n, in)
			n.verdict(out, packet.Unspec)
			n.same(out.Frame, in.Frame)
			n.tables(out, nil, before)
			if seen := n.Watch(n, in); seen.TcIndex != 0 {
				n.Errorf("%s: tc_index: got %#x, want it cleared", in.Program, seen.TcIndex)
			}
		}
		n.notDropped()
	})
}

// A stamp that comes in from elsewhere means nothing.
func TestPrivilegedStampIsClearedAtIngress(t *testing.T) {
	n := newNode(t)
	p := between(v4.a, v4.client, udp)
	for _, in := range []packet.In{
		{Program: "from_pod", Device: n.a.Index, Frame: p.Link(n.a.MAC, n.a.Peer).Frame()},
		{Program: "from_uplink", Device: n.uplink.Index, Frame: p.Reverse().Link(n.uplink.MAC, n.uplink.Peer).Frame()},
	} {
		in.Stamp = redirectStamp
		if seen := n.Watch(n, in); seen.TcIndex != 0 {
			t.Errorf("%s: tc_index: got %#x, want it cleared", in.Program, seen.TcIndex)
		}
	}
}
