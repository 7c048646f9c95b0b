// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

// maker makes random packets, most of them such that something becomes of them. It keeps
// one buffer.
type maker struct {
	*rand.Rand
	s     *stage
	frame []byte
	begun *place // where the last first fragment was, whose datagram may go on
	id    uint32 // of that datagram
}

func newMaker(s *stage, r *rand.Rand) *maker {
	return &maker{Rand: r, s: s, frame: make([]byte, 0, packet.FrameMax)}
}

func (m *maker) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](m *maker, of ...T) T { return of[m.IntN(len(of))] }

// hookNames are the programs.
var hookNames = [...]string{model.FromPod: "from_pod", model.ToPod: "to_pod", model.FromUplink: "from_uplink",
	model.ToUplink: "to_uplink", model.FromHost: "from_host", model.ToTunnel: "to_tunnel"}

// place is a packet's tuple and the hook and device where it shows up.
type place struct {
	model.Tuple
	hook   model.Hook
	device packet.Device
}

const solicitation = 86 // bytes of the one that is answered

// next makes a packet. Its frame is good until the next one.
func (m *maker) next() (model.In, packet.In) {
	at, goesOn := place{}, m.begun != nil && m.chance(10)
	if goesOn {
		at = *m.begun
	} else {
		at = m.place()
	}
	m.build(at, goesOn)
	in := packet.In{Program: hookNames[at.hook], Device: at.device.Index}
	if m.chance(5) {
		in.GSOSize, in.GSOSegs = 1+m.IntN(1500), 1+m.IntN(3)
	}
	// A pod's own kernel makes solicitations, and sums up nothing.
	asked := at.hook == model.FromPod && len(m.frame) == solicitation && m.frame[54] == 135
	if m.s.complete && !asked && m.chance(25) {
		in.Flags = packet.VerifyChecksumComplete
	}
	in.Frame = m.frame
	on := at.device.Index
	if at.hook == model.FromHost {
		on = 1
	}
	return model.In{Hook: at.hook, Device: on, DeviceMAC: at.device.MAC, Frame: m.frame, GSOSize: in.GSOSize}, in
}

func (m *maker) place() place {
	if len(m.s.Opened) == 0 || m.chance(40) {
		return m.fresh()
	}
	t := pick(m, m.s.Opened...)
	if m.chance(10) {
		t = t.Reverse()
	}
	at := place{t, model.FromUplink, m.s.uplink}
	switch {
	case t.Side == model.ToPodSide:
		at.hook, at.device = model.ToPod, m.deviceOf(t.Dst)
	case t.Side == model.ToWireSide:
		at.hook = model.ToUplink
	case m.s.Pods[t.Src].Device != 0:
		at.hook, at.device = model.FromPod, m.deviceOf(t.Src)
	case own(t.Src):
		at.hook, at.device = model.FromHost, packet.Device{}
	}
	if m.chance(6) {
		at.hook, at.device = m.hook()
	}
	return at
}

// deviceOf is the device of the pod that has the address, or any pod's.
func (m *maker) deviceOf(a model.Addr) packet.Device {
	for _, p := range m.s.pods {
		if p.Index == m.s.Pods[a].Device {
			return p.Device
		}
	}
	return pick(m, m.s.pods...).Device
}

func (m *maker) hook() (model.Hook, packet.Device) {
	switch n := m.IntN(20); {
	case n < 6:
		return model.FromPod, pick(m, m.s.pods...).Device
	case n < 13:
		return model.FromUplink, m.s.uplink
	case n < 15:
		return model.FromHost, packet.Device{}
	case n < 17:
		return model.ToPod, pick(m, m.s.pods...).Device
	case n < 18: // whatever the device
		return model.ToTunnel, m.s.uplink
	default:
		return model.ToUplink, m.s.uplink
	}
}

// fresh is a packet that need not be of a flow, from the few that would clash.
func (m *maker) fresh() place {
	f := families[m.IntN(2)]
	at := place{}
	at.hook, at.device = m.hook()
	outside := append([]netip.Addr{f.client, f.client, f.client2, f.gateway}, remotes(f)...)
	node := []netip.Addr{f.node, f.node2, f.loopback}
	src, dst := pick(m, outside...), pick(m, m.addrs(f)...)
	switch at.hook {
	case model.FromPod:
		src = m.own(at.device, f)
	case model.FromHost:
		src, dst = pick(m, node...), pick(m, node...)
	case model.ToPod:
		src, dst = pick(m, append(outside, node...)...), m.own(at.device, f)
	case model.ToUplink, model.ToTunnel:
		src, dst = pick(m, node...), pick(m, outside...)
		if m.chance(60) {
			src = pick(m, m.s.pods...).addrs[side(f)]
		}
	}
	if m.chance(8) {
		src = pick(m, m.odd(f)...)
	}
	if m.chance(8) {
		dst = pick(m, m.odd(f)...)
	}
	at.Tuple = model.Tuple{Src: model.AddrOf(src), Dst: model.AddrOf(dst), Proto: pick[uint8](m, packet.ProtoTCP, packet.ProtoTCP,
		packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDP, packet.ProtoUDP, packet.ProtoICMP, packet.ProtoICMPv6,
		echo.Protocol(f.node.Is4()), packet.ProtoSCTP, packet.ProtoGRE, 50)}
	at.Sport, at.Dport = m.port(), m.port()
	return at
}

func (m *maker) port() uint16 {
	if m.chance(3) {
		return uint16(m.Uint32())
	}
	return pick[uint16](m, 0, 53, 80, 80, 80, 443, 8080, 8082, 9000, 9001, 33000, 40000, 40000, 40001)
}

// own is mostly the address of the pod on the device.
func (m *maker) own(d packet.Device, f family) netip.Addr {
	for _, p := range m.s.pods {
		if p.Index == d.Index && m.chance(90) {
			return p.addrs[side(f)]
		}
	}
	return pick(m, m.s.pods...).addrs[side(f)]
}

// side is the family's place in arrays.
func side(f family) int {
	if f.node.Is4() {
		return 0
	}
	return 1
}

func (m *maker) addrs(f family) []netip.Addr {
	as := append([]netip.Addr{f.node, f.node, f.node2, f.client}, remotes(f)...)
	for _, p := range m.s.pods {
		as = append(as, p.addrs[side(f)])
	}
	return as
}

// odd are addresses that take part in no ordinary flow.
func (m *maker) odd(f family) []netip.Addr {
	as := []netip.Addr{f.loopback, randomAddr(m.Rand, f), pick(m, m.s.pods...).addrs[side(f)]}
	if f.node.Is4() {
		return append(as, ip("127.0.0.2"), ip("0.0.0.0"), ip("255.255.255.255"), ip("224.0.0.5"), ip("192.0.2.255"), ip("203.0.113.9"))
	}
	return append(as, ip("::"), ip("ff02::1"), ip("::ffff:10.1.0.2"), ip("::ffff:192.0.2.1"), ip("::ffff:127.0.0.1"),
		ip("::7f00:1"), ip("fe80::5"), ip("fe80::1"))
}

// damage cuts the packet off or changes some of its bytes.
func (m *maker) damage(l3 int) {
	if m.chance(5) {
		m.frame = m.frame[:l3+m.IntN(len(m.frame)-l3+1)]
	}
	if m.chance(4) {
		for range 1 + m.IntN(3) {
			m.frame[packet.EthLen+m.IntN(len(m.frame)-packet.EthLen)] ^= byte(1 << m.IntN(8))
		}
	}
}

func (m *maker) bytes(n int) {
	for ; n >= 8; n -= 8 {
		m.frame = binary.NativeEndian.AppendUint64(m.frame, m.Uint64())
	}
	for ; n > 0; n-- {
		m.frame = append(m.frame, byte(m.Uint32()))
	}
}

func (m *maker) words(words ...uint16) {
	for _, w := range words {
		m.frame = binary.BigEndian.AppendUint16(m.frame, w)
	}
}
