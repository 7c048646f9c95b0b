// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// pinned pins the node's maps, for who opens them by their names.
func (n *node) pinned(t testing.TB) (pinPath string) {
	t.Helper()
	if n.pins != "" {
		return n.pins
	}
	pinPath = filepath.Join(netns.PinPath(t), "culvert")
	if err := os.MkdirAll(mapsIn(pinPath), 0o700); err != nil {
		t.Fatal(err)
	}
	fields := reflect.ValueOf(*n.maps)
	for i := range fields.NumField() {
		m := fields.Field(i).Interface().(*ebpf.Map)
		if err := m.Pin(filepath.Join(mapsIn(pinPath), fields.Type().Field(i).Tag.Get("ebpf"))); err != nil {
			t.Fatalf("pin %v: %v", m, err)
		}
		t.Cleanup(func() { m.Unpin() })
	}
	n.pins = pinPath
	return pinPath
}

func mapsIn(pinPath string) string { return filepath.Join(pinPath, "v1", "maps") }

// traced starts the real culvertctl on the node.
func (n *node) traced(t testing.TB, args ...string) *netns.Tracer {
	t.Helper()
	program := os.Getenv("CULVERT_BIN")
	if program == "" {
		program = "../bin"
	}
	program = filepath.Join(program, "culvertctl")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make build makes it", err)
	}
	start := func(cmd *exec.Cmd) (err error) {
		n.Do(t, func() error { err = cmd.Start(); return nil })
		return err
	}
	return netns.Trace(t, start, program, append(args, "--pin-path", n.pinned(t))...)
}

// provocation makes the datapath drop one packet: it gives its addresses as they came.
type provocation struct {
	hook, reason string
	device       func(n *node) string
	do           func(n *node, f family) packet.Packet
}

func onA(n *node) string      { return n.a.Name }
func onUplink(n *node) string { return n.uplink.Name }

// provocations has every reason but no_room, which wants an object of its own.
var provocations = []provocation{
	{"from_pod", "source", onA, func(n *node, f family) packet.Packet {
		p := between(f.client2, f.b, udp)
		n.fromPod(n.a, p)
		return p
	}},
	{"from_uplink", "loopback", onUplink, func(n *node, f family) packet.Packet {
		p := between(f.loopback, f.a, syn)
		n.fromUplink(p)
		return p
	}},
	{"from_pod", "egress_limit", onA, func(n *node, f family) packet.Packet {
		n.limit(megabit, 0, time.Hour)
		p := between(f.a, f.client, udp)
		n.fromPod(n.a, p)
		return p
	}},
	{"to_uplink", "ports_exhausted", onUplink, func(n *node, f family) packet.Packet {
		n.masks(1)
		n.toUplink(between(f.a, f.client, udp))
		p := between(f.b, f.client, udp)
		n.toUplink(p)
		return p
	}},
	{"from_host", "too_big", func(*node) string { return "lo" }, func(n *node, f family) packet.Packet {
		n.hostport(netip.Addr{}, 80, packet.ProtoUDP, 8080)
		p := sized(between(f.node, f.node, udp), podMTU+1)
		n.fromHost(p)
		return p
	}},
	{"from_uplink", "fragment_order", onUplink, func(n *node, f family) packet.Packet {
		p := n.hostportFlow(f, udp).in.With(datagram)
		frames := p.Fragments(fragmentID, 1000)
		n.arrive("from_uplink", frames[1:2])
		n.arrive("from_uplink", frames[:1])
		return p
	}},
	{"from_tunnel", "tunnel_source", onUplink, func(n *node, f family) packet.Packet {
		p := between(f.client, f.a, udp)
		n.fromTunnel(p)
		return p
	}},
	{"to_tunnel", "no_remote", onUplink, func(n *node, f family) packet.Packet {
		p := between(f.a, f.client, udp)
		n.toTunnel(p)
		return p
	}},
	// IPv6 takes another device's address: the kernel's choice is by node.
	{"to_uplink", "no_address", func(*node) string { return "bare" }, func(n *node, f family) packet.Packet {
		n.masks(4)
		bare, p := n.Veth(n, "bare", 1500), between(v4.a, v4.client, udp)
		n.run("to_uplink", bare, p.Link(bare.Peer, bare.MAC).Frame())
		return p
	}},
}

// told checks what culvertctl says of a packet that was dropped.
func (n *node) told(row netns.Traced, p provocation, sent packet.Packet) {
	n.Helper()
	src, dst := ends(sent)
	if row.Hook != p.hook || row.Verdict != "drop" || row.Reason != p.reason || row.Device != p.device(n) ||
		row.Src != src || row.Dst != dst || row.Length == 0 || time.Since(row.Time).Abs() > time.Minute {
		n.Errorf("told of %+v, want %s of %s > %s on %s at %s", row, p.reason, src, dst, p.device(n), p.hook)
	}
}

// ends are source and destination as culvertctl prints them.
func ends(p packet.Packet) (src, dst string) {
	t := p.Tuple()
	return end(t.Src, t.Sport).String(), end(t.Dst, t.Dport).String()
}

// O2: a packet that is dropped is seen in culvertctl trace, under each reason there is.
func TestPrivilegedO2EveryReason(t *testing.T) {
	seen := map[string]bool{"no_room": true} // below
	for _, p := range provocations {
		t.Run(p.reason, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				tracer := n.traced(n)
				sent := p.do(n, f)
				n.told(tracer.Next(n), p, sent)
				seen[p.reason] = true
			})
		})
	}
	for reason := bpf.DatapathDropReason(1); reason < bpf.DatapathDropReasonDROP_REASON_MAX; reason++ {
		if !seen[maps.DropReason(reason).String()] {
			t.Errorf("nothing was dropped by reason %s", maps.DropReason(reason))
		}
	}
}

// As of TestPrivilegedNoRoom.
func TestPrivilegedO2NoRoom(t *testing.T) {
	n := newChurningNode(t)
	tracer := n.traced(t)
	sent := between(v4.a, v4.b, udp)
	n.fromPod(n.a, sent)
	n.told(tracer.Next(t), provocation{hook: "from_pod", reason: "no_room", device: onA}, sent)
}

// What shows no address to the datapath shows at least where it was, and ARP who it named.
func TestPrivilegedO2NoIP(t *testing.T) {
	n := newNode(t)
	tracer := n.traced(t)
	once := between(v4.b, v4.client, udp).Link(n.a.MAC, n.a.Peer).Frame()
	n.Run(n, packet.In{Program: "from_pod", Device: n.a.Index, Frame: once, Tagged: true})
	if row := tracer.Next(t); row.Reason != "source" || row.Device != n.a.Name || row.Ethertype != "0x8100" && row.Ethertype != "0x0800" || row.Proto != "" || row.Src != "" {
		t.Errorf("tagged: %+v", row)
	}
	n.run("from_pod", n.a.Device, arp(arpReply, n.a.MAC, n.a.Peer, v4.b, v4.a, n.a.MAC))
	if row := tracer.Next(t); row.Reason != "source" || row.Proto != "arp" || row.Src != v4.b.String() || row.Dst != v4.a.String() {
		t.Errorf("ARP: %+v", row)
	}
}

// followed is a Trace in this process, of a filter, and what is told while f runs.
func (n *node) followed(t testing.TB, filter maps.TraceFilter, f func()) (events []maps.Event, lost uint64) {
	t.Helper()
	trace, err := maps.OpenTrace(mapsIn(n.pinned(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	now := time.Duration(fineNow())
	trace.Start(filter, now, now+time.Minute)
	f()
	for {
		e, _, err := trace.Read(time.Now().Add(-time.Second))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return events, trace.Lost()
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

func brief(e maps.Event) string {
	out := ""
	if e.OutIfindex != 0 {
		out = fmt.Sprintf(" to %d", e.OutIfindex)
	}
	return fmt.Sprintf("%s %s %s>%s as %s>%s%s", e.Hook, e.Verdict, e.Tuple.Src, e.Tuple.Dst, e.To.Src, e.To.Dst, out)
}

// O2: every hook tells what it made of a packet: the request of a hostPort, its answer, and
// what belongs to nobody.
func TestPrivilegedO2Verdicts(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		back := fl.out.Reverse()
		filter := maps.TraceFilter{Host: f.client, Port: 40000, Proto: packet.ProtoUDP}
		got, lost := n.followed(n, filter, func() {
			n.fromUplink(fl.in)
			n.Run(n, packet.In{Program: "to_pod", Device: n.a.Index, Frame: fl.out.Frame(), Stamp: redirectStamp})
			n.fromPod(n.a, back)
			n.fromPod(n.b, between(f.b, f.client, udp))
			n.toUplink(between(f.b, f.client, udp))
			n.toPod(n.b, between(f.client, f.b, udp))
			n.fromHost(between(f.node, f.client, udp))
		})
		node, a, b, client := end(packet.Addr(f.node), 80), end(packet.Addr(f.a), 8080), end(packet.Addr(f.b), 40000), end(packet.Addr(f.client), 40000)
		port80 := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), 80) }
		want := []string{
			fmt.Sprintf("from_uplink redirect %s>%s as %s>%s to %d", client, node, client, a, n.a.Index),
			fmt.Sprintf("to_pod redirected %s>%s as %s>%s", client, a, client, a),
			fmt.Sprintf("from_pod redirect %s>%s as %s>%s to %d", a, client, node, client, n.uplink.Index),
			fmt.Sprintf("from_pod pass %s>%s as %s>%s", b, port80(client), b, port80(client)),
			fmt.Sprintf("to_uplink pass %s>%s as %s>%s", b, port80(client), b, port80(client)),
			fmt.Sprintf("to_pod pass %s>%s as %s>%s", client, port80(b), client, port80(b)),
			fmt.Sprintf("from_host pass %s>%s as %s>%s", netip.AddrPortFrom(f.node, 40000), port80(client), netip.AddrPortFrom(f.node, 40000), port80(client)),
		}
		var lines []string
		for _, e := range got {
			lines = append(lines, brief(e))
		}
		if !reflect.DeepEqual(lines, want) || lost != 0 {
			n.Errorf("told, %d lost:\n%q\nwant\n%q", lost, lines, want)
		}
	})
}

// A filter holds what it names, as the packet comes or as it leaves, and all of it.
func TestPrivilegedO2Filters(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		fl := n.hostportFlow(f, udp)
		send := func() {
			n.fromUplink(fl.in)                           // client:40000 > node:80 as > a:8080
			n.fromPod(n.b, between(f.client2, f.b, udp))  // dropped
			n.fromPod(n.b, between(f.b, f.client2, echo)) // passes
		}
		for name, c := range map[string]struct {
			filter maps.TraceFilter
			want   string // which of the three
		}{
			"nothing":          {maps.TraceFilter{}, "123"},
			"drops":            {maps.TraceFilter{DropsOnly: true}, "2"},
			"called address":   {maps.TraceFilter{Host: f.node}, "1"},
			"address behind":   {maps.TraceFilter{Host: f.a}, "1"},
			"source":           {maps.TraceFilter{Host: f.client2}, "23"},
			"called port":      {maps.TraceFilter{Port: 80}, "12"},
			"port behind":      {maps.TraceFilter{Port: 8080}, "1"},
			"UDP":              {maps.TraceFilter{Proto: packet.ProtoUDP}, "12"},
			"ICMP":             {maps.TraceFilter{Proto: packet.ProtoICMP}, "3"},
			"pod by address":   {maps.TraceFilter{Ifindex: n.a.Index}, "1"},
			"pod by device":    {maps.TraceFilter{Ifindex: n.b.Index}, "23"},
			"host and port":    {maps.TraceFilter{Host: f.client2, Port: 80}, "2"},
			"drops of the pod": {maps.TraceFilter{Ifindex: n.a.Index, DropsOnly: true}, ""},
		} {
			n.forget()
			got := ""
			events, _ := n.followed(n, c.filter, send)
			for _, e := range events {
				switch {
				case e.Hook == maps.Hook(fromUplinkHook):
					got += "1"
				case e.Verdict == maps.VerdictDrop:
					got += "2"
				default:
					got += "3"
				}
			}
			if got != c.want {
				n.Errorf("%s: told of %q, want %q", name, got, c.want)
			}
		}
	})
}

// Who follows and is too slow is told how much he missed; who is gone leaves silence.
func TestPrivilegedO2LostAndSilent(t *testing.T) {
	n := newNode(t)
	const packets = 6000 // more than the ring holds
	p := between(v4.client2, v4.b, udp)
	events, lost := n.followed(t, maps.TraceFilter{}, func() {
		for range packets {
			n.fromPod(n.a, p)
		}
	})
	if len(events) < 4000 || lost == 0 || len(events)+int(lost) != packets {
		t.Errorf("%d told, %d lost, of %d", len(events), lost, packets)
	}
	row := func() bpf.DatapathTraceFilter {
		row, _ := packet.Get[bpf.DatapathTraceFilter](t, n.maps.Trace, uint32(0))
		return row
	}
	if row().UntilNs != 0 {
		t.Errorf("the reader has closed: %+v", row())
	}
	// Killed: his time is over, and what he left is no later reader's.
	packet.Put(t, n.maps.Trace, uint32(0), bpf.DatapathTraceFilter{UntilNs: fineNow() + uint64(time.Hour)})
	n.fromPod(n.a, p)
	packet.Put(t, n.maps.Trace, uint32(0), bpf.DatapathTraceFilter{UntilNs: fineNow() - 1})
	n.fromPod(n.a, p)
	if row().UntilNs != 0 {
		t.Errorf("a dead reader's row stays: %+v", row())
	}
	if events, _ := n.followed(t, maps.TraceFilter{}, func() {}); len(events) != 0 {
		t.Errorf("told of what was before: %+v", events)
	}
}
