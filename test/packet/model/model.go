// SPDX-License-Identifier: Apache-2.0

// Package model says what the datapath makes of a packet, as docs/packet-paths.md and
// docs/maps.md describe it: verdict, bytes, rows and drops. It is the other opinion that
// bpf's fuzz test asks, so it shares no code with the datapath, nor with package packet,
// and computes every checksum from all the bytes that it covers where the datapath adds
// up differences.
package model

import (
	"errors"
	"net/netip"
	"time"
)

// Addr is an address of either family, IPv4 as ::ffff:a.b.c.d.
type Addr [16]byte

// Hook is one of the programs; from_tunnel, of which no test packet can come, is left out.
type Hook uint16

// The hooks, by the numbers of the counters.
const (
	FromPod Hook = iota + 1
	ToPod
	FromUplink
	ToUplink
	FromHost
	_
	ToTunnel
)

// Verdict is what a program returns.
type Verdict int32

// The verdicts.
const (
	Stack    Verdict = -1
	Shot     Verdict = 2
	Redirect Verdict = 7
)

// Reason is why a packet was dropped (docs/maps.md).
type Reason uint16

// The reasons that the model knows.
const (
	Source         Reason = 1
	Loopback       Reason = 2
	PortsExhausted Reason = 4
	TooBig         Reason = 5
	FragmentOrder  Reason = 7
	NoAddress      Reason = 8
	NoRemote       Reason = 10
)

// Side tells what comes from a pod, the wire or lo, and what the stack sends.
type Side uint8

// The sides.
const (
	Fast Side = iota
	ToPodSide
	ToWireSide
)

// Tuple is what a row is filed under.
type Tuple struct {
	Src, Dst     Addr
	Sport, Dport uint16
	Proto        uint8
	Side         Side
}

// Action is where a row leads.
type Action uint16

// The actions.
const (
	GoPod Action = iota + 1
	GoWire
	GoHost
	GoStack
)

// Row is a flow's row, in `halfopen` or in `flows`.
type Row struct {
	Src, Dst                           Addr
	Sport, Dport                       uint16
	Action                             Action
	Translate, Reply, Hostport, Masked bool
	From, To                           uint64 // generations of the pods at both ends
	Answered, Fin, PeerFin, Reset, Mid bool
	Seq                                uint32
	Half                               bool          // in `halfopen`
	Reopened                           bool          // as good as that, in `flows`
	Age                                time.Duration // 0: used while the model was looking
}

// Pod is a row of `pods`.
type Pod struct {
	Generation   uint64
	Device       int
	Netns        uint32
	MTU          int
	MAC, HostMAC [6]byte
	Checked      bool // speaks for itself alone
	Chained      bool
	Masquerade   bool
}

// Link is a row of `ifaces`: the device of a pod.
type Link struct {
	Netns uint32
	Addrs []Addr // of the pod
}

// Service is the key of `hostports`; the zero Addr stands for every local one.
type Service struct {
	Addr  Addr
	Port  uint16
	Proto uint8
}

// Hostport is a row of `hostports`.
type Hostport struct {
	Pod4, Pod6 Addr
	Generation uint64
	Port       uint16
	Loopback   bool
}

// Datagram is the key of `fragments`.
type Datagram struct {
	Src, Dst Addr
	ID       uint32
	Proto    uint8
	Side     Side
}

// Begun is a row of `fragments`: the tuple of the first fragment, or that a later one came
// before it, and when (the clock was between Early and Late).
type Begun struct {
	Tuple       Tuple
	Orphan      bool
	Early, Late uint64
}

// Range is of ports, both inclusive.
type Range struct{ First, Last uint16 }

// Drop is the key of `counters`.
type Drop struct {
	Device int
	Hook   Hook
	Reason Reason
}

// Remote is what a row of `remotes` says; the zero Remote is none.
type Remote struct {
	Is     bool
	Tunnel bool
	Fast   bool // the device that the FIB leads to is one of ours
}

// Count is a row of `counters`.
type Count struct{ Packets, Bytes uint64 }

// Timeouts are how long a row is believed without a packet.
type Timeouts struct {
	SYN, TCP, Closed, MaskedClosed, Unanswered, UDP, Other time.Duration
}

// Node is what the packets meet. The caller fills in all but Drops and Opened.
type Node struct {
	Pods      map[Addr]Pod
	Links     map[int]Link
	Hostports map[Service]Hostport
	Rows      map[Tuple]*Row
	Fragments map[Datagram]Begun
	Pool      []Range // source ports of masqueraded flows
	Timeouts  Timeouts
	// Local and Route are the FIB, asked with source and destination: would it forward to a
	// unicast address or is that the node's own, and the MTU on the way, 0 if it is the
	// stack that has to know.
	Local func(src, dst Addr) bool
	Route func(src, dst Addr) int
	// Uplink is the node's own address towards one.
	Uplink func(dst Addr) (Addr, bool)
	// Tunnel is the tunnel device's addresses; of each family the first is given to strangers.
	Tunnel []Addr
	// Excluded and Nonmasq are the ranges of `excluded` and `nonmasq`.
	Excluded, Nonmasq func(Addr) bool
	// Remote says what there is to know of an address that is another node's.
	Remote func(Addr) Remote
	// Chosen tells the client's port in the row that the datapath wrote: which of the free
	// ports it takes is its own choice.
	Chosen func(Tuple) (uint16, bool)

	Drops  map[Drop]Count
	Opened []Tuple // keys of rows since the caller last emptied it
	// Fault is set when the datapath's choice was none that it had, or is ErrUnsure.
	Fault error

	out []byte
}

// In is a packet at a hook.
type In struct {
	Hook      Hook
	Device    int
	DeviceMAC [6]byte
	Frame     []byte
	GSOSize   int // payload a segment, 0: not to be cut
	// The clock before and after the datapath's run.
	Early, Late uint64
}

// Out is what becomes of it.
type Out struct {
	Verdict Verdict
	Frame   []byte // good until the next packet
	// Loose is the offset of a checksum that was wrong before, and has to be as wrong
	// after, or that differences alone cannot tell: there 0 and 0xffff are the same. 0: none.
	Loose [4]int
	// Any is the offset of 4 bytes that may be anything: the CRC of a packet that says a
	// wrong length of itself. 0: none.
	Any int
}

// ErrUnsure: what the datapath does depends on a time that the model knows too roughly.
var ErrUnsure = errors.New("the clock was too close to a limit")

// AddrOf converts an address.
func AddrOf(a netip.Addr) Addr { return a.As16() }

func (a Addr) v4() bool { return netip.AddrFrom16(a).Is4In6() }

func (a Addr) loopback() bool {
	ip := netip.AddrFrom16(a)
	return ip.Unmap().IsLoopback()
}

// Reverse is the key of what comes back.
func (t Tuple) Reverse() Tuple {
	return Tuple{Src: t.Dst, Dst: t.Src, Sport: t.Dport, Dport: t.Sport, Proto: t.Proto}
}
