// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// offloadPackets go each way of each case: 10,000 in all, and more.
const offloadPackets = 500

// talk is one flow as both of its ends have it on their wires.
type talk struct {
	*testing.T
	client, server       *wireEnd
	clientAt, serverAt   packet.MAC // where each end sends to
	asked, seen          netip.AddrPort
	from, called         netip.AddrPort
	proto                uint8
	learn                bool // the client's port at the server is read from the first packet
	r                    *rand.Rand
	partial, cut, served int
	uncut                bool // a packet socket before 6.2 takes no datagrams to be cut
}

// I3: what a device is still to do with a packet, a checksum or the cutting into segments,
// survives translation, by every path: payload whole, segment size kept, and the sum right
// once it is completed.
func TestPrivilegedI3Offload(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	pod := node.Add(t, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	masked := node.Add(t, netns.PodSpec{Name: "m", Conf: masquerading()})
	for _, ns := range []*netns.NS{outside.NS, pod.NS, masked.NS} { // the sockets here are not the kernel's
		ns.MustRun(t, "table inet quiet {\nchain input {\ntype filter hook input priority 0; policy accept;\n"+
			"meta l4proto { tcp, udp } drop\n}\n}\n", "nft", "-f", "-")
	}
	out := openWire(t, outside.NS, "port0")
	onPod, onMasked := openWire(t, pod.NS, pod.IfName), openWire(t, masked.NS, masked.IfName)
	up := mac(t, devices(t, node.NS)[node.Uplinks[0].Dev].MAC)
	total, port := 0, uint16(20000)
	for _, tc := range []struct {
		name                string
		client, server      *wireEnd
		clientAt, serverAt  packet.MAC
		asked, seen         func(int) netip.Addr
		askedPort, seenPort uint16
		from, called        func(int) netip.Addr
		learn               bool
	}{
		{"Hostport", out, onPod, up, mac(t, pod.Host.MAC), node.Uplinks[0].Addr, pod.Addr, 8080, 80,
			outside.Addr, outside.Addr, false},
		{"Pod", out, onPod, up, mac(t, pod.Host.MAC), pod.Addr, pod.Addr, 80, 80,
			outside.Addr, outside.Addr, false},
		{"Masquerade", onMasked, out, mac(t, masked.Host.MAC), up, outside.Addr, outside.Addr, 80, 80,
			masked.Addr, node.Uplinks[0].Addr, true},
	} {
		for _, v := range families {
			for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP} {
				port++ // or the flows would have to share the pod's port, and get others
				t.Run(fmt.Sprintf("%s/%d/%d", tc.name, proto, v), func(t *testing.T) {
					k := talk{T: t, client: tc.client, server: tc.server, clientAt: tc.clientAt, serverAt: tc.serverAt,
						asked: netip.AddrPortFrom(tc.asked(v), tc.askedPort), seen: netip.AddrPortFrom(tc.seen(v), tc.seenPort),
						from: netip.AddrPortFrom(tc.from(v), port), called: netip.AddrPortFrom(tc.called(v), port),
						proto: proto, learn: tc.learn, r: rand.New(rand.NewPCG(uint64(v), uint64(proto)))}
					total += k.run()
				})
			}
		}
	}
	t.Logf("%d packets", total)
	if total < 10_000 && !t.Failed() {
		t.Errorf("%d packets are too few", total)
	}
}

// run opens the flow and sends both ways.
func (k *talk) run() (packets int) {
	if k.proto == packet.ProtoTCP {
		k.there(k.tcp(packet.SYN), 1500, nil)
		k.back(k.tcp(packet.SYN|packet.ACK), 1500, nil)
		k.there(k.tcp(packet.ACK), 1500, nil)
	}
	for i := range offloadPackets {
		if k.Failed() {
			return
		}
		size := 500 + k.r.IntN(900)
		payload := make([]byte, 1+k.r.IntN(size))
		if i%2 == 1 && !k.uncut {
			payload = make([]byte, size+1+k.r.IntN(12*size))
		}
		for j := range payload {
			payload[j] = byte(k.r.Uint32())
		}
		k.there(k.transport(), size, payload)
		k.back(k.transport(), size, payload)
		packets += 2
	}
	k.Logf("%d partial sums, %d to be cut, of %d", k.partial, k.cut, k.served)
	if k.partial == 0 || k.cut == 0 && !k.uncut {
		k.Errorf("nothing was left to the receiver's device")
	}
	return packets
}

func (k *talk) tcp(flags uint8) packet.TCP {
	return packet.TCP{Seq: 1000, Ack: 1001, Flags: flags, Options: []byte{1, 1, 1, 1}}
}

func (k *talk) transport() packet.Transport {
	if k.proto == packet.ProtoTCP {
		return k.tcp(packet.ACK | packet.PSH)
	}
	return packet.UDP{}
}

// there sends from the client; the server sees who called.
func (k *talk) there(tr packet.Transport, size int, payload []byte) {
	k.Helper()
	sent := between(k.from, k.asked, tr, payload).Link(k.clientAt, k.client.mac)
	got := k.pass(k.client, k.server, sent, size, k.seen.Port())
	if got == nil {
		return
	}
	if k.learn {
		k.learn, k.called = false, netip.AddrPortFrom(k.called.Addr(), read(got).sport)
	}
	k.same(got, between(k.called, k.seen, tr, payload))
}

// back sends from the server; the client sees what it had called.
func (k *talk) back(tr packet.Transport, size int, payload []byte) {
	k.Helper()
	sent := between(k.seen, k.called, tr, payload).Link(k.serverAt, k.server.mac)
	if got := k.pass(k.server, k.client, sent, size, k.from.Port()); got != nil {
		k.same(got, between(k.asked, k.from, tr, payload))
	}
}

func between(src, dst netip.AddrPort, tr packet.Transport, payload []byte) packet.Packet {
	return packet.Packet{Src: src.Addr(), Dst: dst.Addr(), Transport: tr.WithPorts(src.Port(), dst.Port()), Payload: payload}
}

// pass sends a packet and returns what arrives; nil if that is not known.
func (k *talk) pass(from, to *wireEnd, p packet.Packet, size int, port uint16) []byte {
	k.Helper()
	v, frame := partial(p, size)
	if err := from.send(v, frame); err != nil {
		if _, cuts := release(k.T, 6, 2); errors.Is(err, unix.EINVAL) && v.gso == gsoUDP && !cuts {
			k.uncut = true
			return nil
		}
		k.Fatalf("send %d bytes, %+v: %v", len(frame), v, err)
	}
	got, frame, err := to.next(port)
	if err != nil {
		k.Fatalf("%d bytes, %+v: %v", len(frame), v, err)
	}
	if got.gso != v.gso || got.size != v.size {
		k.Errorf("to be cut: got type %d, size %d, want %d, %d", got.gso, got.size, v.gso, v.size)
	}
	k.served++
	if got.needsSum {
		k.partial++
	}
	if got.gso != gsoNone {
		k.cut++
	}
	return frame
}

// same: the packet is what was sent, one router further, from and to whom it should be.
func (k *talk) same(got []byte, want packet.Packet) {
	k.Helper()
	if err := packet.Verify(got); err != nil {
		k.Error(err)
	}
	if frame := want.Hop().Frame(); !bytes.Equal(got[packet.EthLen:], frame[packet.EthLen:]) {
		k.Errorf("%d bytes:\ngot  %x\nwant %x", len(got), got[packet.EthLen:min(len(got), 120)], frame[packet.EthLen:min(len(frame), 120)])
	}
}
