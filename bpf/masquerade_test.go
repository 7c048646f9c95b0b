// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/packet"
)

const (
	toUplinkHook   = bpf.DatapathHookHOOK_TO_UPLINK
	dropExhausted  = bpf.DatapathDropReasonDROP_PORTS_EXHAUSTED
	dropNoAddress  = bpf.DatapathDropReasonDROP_NO_ADDRESS
	sideWire       = bpf.DatapathSideSIDE_WIRE
	flowMasquerade = bpf.DatapathFlowFlagFLOW_MASQUERADE
	poolFirst      = 61000
)

// masks makes both pods' flows masqueraded ones, with so many source ports.
func (n *node) masks(ports uint16) {
	n.Helper()
	for _, p := range []*pod{&n.a, &n.b} {
		p.row.Flags |= bpf.DatapathPodFlagPOD_MASQUERADE
	}
	for _, f := range families {
		n.putPod(f.a, n.a.row)
		n.putPod(f.b, n.b.row)
	}
	var c bpf.DatapathNodeConfig
	if ports > 0 { // in two ranges
		c.Ports[0] = bpf.DatapathPortRange{First: poolFirst, Last: poolFirst}
		c.PortCount = uint32(ports)
	}
	if ports > 1 {
		c.Ports[1] = bpf.DatapathPortRange{First: poolFirst + 1, Last: poolFirst + ports - 1}
	}
	c.Uplinks[0] = bpf.DatapathUplink{Ifindex: uint32(n.uplink.Index), Addr4: packet.Addr(n.address(v4)), Addr6: packet.Addr(n.address(v6))}
	packet.Put(n, n.maps.Config, uint32(0), c)
}

// address is what the node itself would send from to the family's clients.
func (n *node) address(f family) netip.Addr {
	n.Helper()
	var a netip.Addr
	n.Do(n, func() error {
		c, err := net.Dial("udp", net.JoinHostPort(f.client.String(), "9"))
		if err != nil {
			return err
		}
		defer c.Close()
		a = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		return nil
	})
	return a
}

// masked is pod A calling somebody outside; the port it leaves by is read from the row.
func (n *node) masked(f family, o opener) flow {
	n.Helper()
	in := between(f.a, f.client, o.Transport)
	return flow{in: in, out: in, from: genA, action: toStack, reply: toStack, state: o.state, stateOut: o.state, side: sideWire, masked: true}
}

// leaves sends the request to the wire and notes what it said there.
func (n *node) leaves(fl *flow) packet.Out {
	n.Helper()
	return n.leavesBy(fl, n.toUplink)
}

func (n *node) leavesBy(fl *flow, way func(packet.Packet) packet.Out) packet.Out {
	n.Helper()
	out := way(fl.in)
	n.verdict(out, packet.Unspec)
	key, _ := fl.keys()
	row, ok := packet.Get[bpf.DatapathFlow](n, n.maps.Halfopen, key)
	if !ok {
		if row, ok = packet.Get[bpf.DatapathFlow](n, n.maps.Flows, key); !ok {
			n.Fatalf("no %s", name(key))
		}
	}
	fl.out = fl.in.From(netip.AddrFrom16(row.Src.Ip).Unmap(), row.Sport)
	n.same(out.Frame[packet.EthLen:], fl.out.Frame()[packet.EthLen:])
	return out
}

// F1: what a pod sends outside says the node's address; the answer comes back to the stack
// as the pod's own.
func TestPrivilegedF1Masquerade(t *testing.T) {
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				n.masks(4)
				fl := n.masked(f, o)
				out := n.leaves(&fl)
				port, _ := fl.out.Transport.Ports()
				if o.name != "gre" && o.name != "middle" && (port < poolFirst || port > poolFirst+3) {
					n.Errorf("port %d is none of the pool", port)
				}
				if fl.out.Src != n.address(f) {
					n.Errorf("source %s, the node's is %s", fl.out.Src, n.address(f))
				}
				n.tables(out, fl.rows(), nil)

				back, seen := answer(fl.out), answer(fl.in)
				n.passed(n.fromUplink(back), seen)
				n.passed(n.toPod(n.a, seen), seen)
				n.passed(n.toUplink(fl.in), fl.out)
				n.notDropped()
			})
		})
	}
}

// A number that is the pool's is kept, also by the next connection of the same tuple.
func TestPrivilegedMasqueradeKeeps(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(4)
		fl := n.masked(f, openers[2])
		fl.in = fl.in.From(f.a, poolFirst+2)
		n.leaves(&fl)
		if fl.out.Transport != (packet.UDP{Src: poolFirst + 2, Dst: 80}) {
			n.Errorf("left as %+v", fl.out.Transport)
		}
		first := n.masked(f, openers[0])
		n.leaves(&first)
		closing := ack
		closing.Flags |= packet.FIN
		n.passed(n.toUplink(first.in.As(closing)), first.out.As(closing.WithPorts(first.out.Transport.Ports())))
		n.fromUplink(answer(first.out).As(packet.TCP{Src: 80, Dst: port(first.out), Flags: packet.FIN | packet.ACK}))
		again := n.masked(f, openers[0])
		n.leaves(&again)
		if port(again.out) != port(first.out) {
			n.Errorf("port %d, before %d", port(again.out), port(first.out))
		}
		n.notDropped()
	})
}

func source(frame []byte) netip.Addr {
	at, size := packet.EthLen+12, 4
	if frame[packet.EthLen]>>4 == 6 {
		at, size = packet.EthLen+8, 16
	}
	a, _ := netip.AddrFromSlice(frame[at : at+size])
	return a
}

func port(p packet.Packet) uint16 {
	src, _ := p.Transport.Ports()
	return src
}

// F3: a connection in mid-stream without its row is led to a number that is no lost
// connection's, to be reset.
func TestPrivilegedF3MasqueradeLost(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(4)
		fl := n.masked(f, openers[1])
		n.leaves(&fl)
		if port(fl.out) < 1024 || port(fl.out) >= 20000 {
			n.Errorf("port %d may be that of another lost connection", port(fl.out))
		}
		reset := packet.TCP{Src: 80, Dst: port(fl.out), Flags: packet.RST}
		n.passed(n.fromUplink(fl.out.Reverse().As(reset)), fl.in.Reverse().As(reset.WithPorts(80, 40000)))
		n.notDropped()
	})
}

// What is not masqueraded: by whom, where to, and answers to what the stack brought.
func TestPrivilegedMasqueradeSpares(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(4)
		call := between(f.a, f.client, udp)
		spared := func(p packet.Packet) {
			n.Helper()
			n.passed(n.toUplink(p), p)
			n.tables(packet.Out{}, nil, nil)
		}
		spared(between(f.a, f.client, packet.Echo{ID: 7, Reply: true}))
		if f.node.Is4() {
			spared(call.To(ip("224.0.0.251"), 53))
		} else {
			spared(call.To(ip("ff0e::1"), 53))
		}
		n.nonmasq(f.client, 24)
		spared(call)
		n.clear()
		spared(call) // the pod's rows do not ask for it
		n.masks(4)
		n.Conntrack(n, call.Reverse())
		spared(call)
		n.notDropped()
	})
}

// nonmasq puts the range of an address, so many bits long for IPv4.
func (n *node) nonmasq(a netip.Addr, bits int) {
	n.Helper()
	packet.Put(n, n.maps.Nonmasq, cidrKey(a, bits), bpf.DatapathCidr{})
}

// F2: numbers in use are passed over, whoever has them; where none is left the packet is
// dropped by that name, and the older flows go on.
func TestPrivilegedF2Ports(t *testing.T) {
	for _, o := range openers[:4] {
		if o.name == "middle" {
			continue // leaves by none of the pool (F3)
		}
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				n.masks(2)
				first, second := n.masked(f, o), n.masked(f, o)
				second.in.Src, second.from = f.b, genB
				n.leaves(&first)
				n.leaves(&second)
				if port(first.out) == port(second.out) {
					n.Errorf("two pods share port %d", port(first.out))
				}
				third := n.masked(f, o)
				third.in = third.in.From(f.a, 40001)
				n.dropped(n.toUplink(third.in), n.uplink.Index, toUplinkHook, dropExhausted)
				n.passed(n.toUplink(first.in), first.out)
				n.passed(n.fromUplink(answer(second.out)), answer(second.in))
				// To another place each number is free.
				third.in.Dst = f.client2
				n.leaves(&third)
			})
		})
	}
}

// F2: the numbers of hostPorts, of the host's own sockets and of conntrack's flows.
func TestPrivilegedF2OthersPorts(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for name, take := range map[string]func(){
			"hostPort":  func() { n.hostport(netip.Addr{}, poolFirst, packet.ProtoUDP, 8080) },
			"conntrack": func() { n.Conntrack(n, between(n.address(f), f.client, packet.UDP{Src: poolFirst, Dst: 80})) },
			"listener": func() {
				n.Do(n, func() error {
					l, err := net.Listen("tcp", net.JoinHostPort("", fmt.Sprint(poolFirst)))
					n.Cleanup(func() { l.Close() })
					return err
				})
			},
			"socket": func() {
				n.Do(n, func() error {
					c, err := net.ListenUDP("udp", &net.UDPAddr{Port: poolFirst})
					n.Cleanup(func() { c.Close() })
					return err
				})
			},
		} {
			n.clear()
			n.masks(2)
			take()
			fl := n.masked(f, openers[2])
			if name == "listener" {
				fl = n.masked(f, openers[0])
			}
			n.leaves(&fl)
			if port(fl.out) != poolFirst+1 {
				n.Errorf("%s: port %d is in use", name, port(fl.out))
			}
			if name == "conntrack" {
				break // its rows stay: the last one
			}
		}
		n.notDropped()
	})
}

// F2: a number rests after its connection closed, or its pod went.
func TestPrivilegedF2Rests(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, end := range map[string]func(flow){
			"closed": func(fl flow) {
				reset := packet.TCP{Src: 40000, Dst: 80, Flags: packet.RST}
				n.passed(n.toUplink(fl.in.As(reset)), fl.out.As(reset.WithPorts(port(fl.out), 80)))
			},
			"pod gone": func(flow) {
				row := n.a.row
				row.Generation++
				n.putPod(f.a, row)
			},
		} {
			n.clear()
			n.masks(1)
			fl := n.masked(f, openers[0])
			n.leaves(&fl)
			end(fl)
			next := n.masked(f, openers[0])
			next.in.Src, next.from = f.b, genB
			// As if the connection had been proved.
			for key, row := range n.flowRows(n.maps.Halfopen) {
				packet.Put(n, n.maps.Flows, key, row)
			}
			n.age(n.maps.Flows, timeouts[bpf.DatapathVarMasqueradeClosedTimeoutNs]-time.Second/2)
			n.dropped(n.toUplink(next.in), n.uplink.Index, toUplinkHook, dropExhausted)
			n.age(n.maps.Flows, time.Second)
			n.age(n.maps.Halfopen, time.Minute/8)
			n.Object.ClearDrops(n)
			n.leaves(&next)
			n.notDropped()
		}
	})
}

// An answer finds its pod, or nobody: another one that has the address now is a stranger.
func TestPrivilegedMasqueradeFormerPod(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(4)
		fl := n.masked(f, openers[2])
		n.leaves(&fl)
		row := n.a.row
		row.Generation++
		n.putPod(f.a, row)
		n.passed(n.fromUplink(answer(fl.out)), answer(fl.out))
		n.notDropped()
	})
}

// An uplink without an address carries nothing. (IPv6 takes another device's: the kernel's
// choice is by node.)
func TestPrivilegedMasqueradeNoAddress(t *testing.T) {
	n, f := newNode(t), v4
	n.masks(4)
	bare := n.Veth(n, "bare", 1500)
	fl := n.masked(f, openers[2])
	frame := fl.in.Link(bare.Peer, bare.MAC).Frame()
	n.dropped(n.run("to_uplink", bare, frame), bare.Index, toUplinkHook, dropNoAddress)
	// A kernel that cannot be asked is told.
	c, _ := packet.Get[bpf.DatapathNodeConfig](n, n.maps.Config, uint32(0))
	c.Uplinks[7] = bpf.DatapathUplink{Ifindex: uint32(bare.Index), Addr4: packet.Addr(f.node2)}
	packet.Put(n, n.maps.Config, uint32(0), c)
	out := n.run("to_uplink", bare, frame)
	n.verdict(out, packet.Unspec)
	if got := source(out.Frame); got != f.node2 {
		n.Errorf("source %s, want %s", got, f.node2)
	}
}

// H11, F2: the host's own connection by a number that a pod's flow has for the same place
// gets another one; by any other number it stays as it is.
func TestPrivilegedMasqueradeMeetsHost(t *testing.T) {
	for _, o := range openers[:4] {
		if o.name == "middle" {
			continue // the host's connection would have begun before
		}
		t.Run(o.name, func(t *testing.T) {
			eachFamily(t, func(n *node, f family) {
				n.masks(2)
				pods := n.masked(f, o)
				n.leaves(&pods)
				own := pods
				own.in, own.from = pods.out, 0
				n.leaves(&own)
				if port(own.out) == port(pods.out) {
					n.Errorf("the host shares port %d with a pod", port(own.out))
				}
				n.passed(n.fromUplink(answer(own.out)), answer(own.in))
				n.passed(n.fromUplink(answer(pods.out)), answer(pods.in))
				other := own.in
				other.Dst = f.client2
				n.passed(n.toUplink(other), other)
				n.notDropped()
			})
		})
	}
}

// I2: the fragments of a masqueraded datagram follow their first one; one that comes
// before it must not leave as it is.
func TestPrivilegedI2MasqueradeFragments(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(1)
		fl := n.masked(f, openers[2])
		fl.in = fl.in.With(datagram)
		fl.out = fl.in.From(n.address(f), poolFirst)
		want := fl.out.Fragments(fragmentID, 1000)
		for i, out := range n.arrive("to_uplink", fl.in.Fragments(fragmentID, 1000)) {
			n.verdict(out, packet.Unspec)
			n.same(out.Frame[packet.EthLen:], want[i][packet.EthLen:])
		}
		back := fl.in.Reverse().Fragments(fragmentID, 1000)
		for i, out := range n.arrive("from_uplink", fl.out.Reverse().Fragments(fragmentID, 1000)) {
			n.verdict(out, packet.Unspec)
			n.same(out.Frame[packet.EthLen:], back[i][packet.EthLen:])
		}
		n.notDropped()
		late := fl.in.Fragments(fragmentID+1, 1000)
		n.dropped(n.arrive("to_uplink", late[1:2])[0], n.uplink.Index, toUplinkHook, dropFragmentOrder)
		n.Object.ClearDrops(n)
		n.dropped(n.arrive("to_uplink", late[:1])[0], n.uplink.Index, toUplinkHook, dropFragmentOrder)
		n.nonmasq(f.client, 24)
		spared := fl.in.To(f.client2, 80).Fragments(fragmentID+2, 1000)
		for i, out := range n.arrive("to_uplink", [][]byte{spared[1], spared[0]}) {
			n.verdict(out, packet.Unspec)
			n.same(out.Frame, spared[1-i])
		}
	})
}

// An answer of the fast path that the stack had to cut says what it would have said, and
// is not masqueraded.
func TestPrivilegedLateAnswer(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		for _, masked := range []bool{false, true} {
			n.clear()
			if masked {
				n.masks(4)
			}
			fl := n.hostportFlow(f, udp)
			n.put(n.maps.Flows, fl, 0)
			back := fl.out.Reverse().With(datagram)
			want := fl.in.Reverse().With(datagram).Fragments(fragmentID, 1000)
			for i, out := range n.arrive("to_uplink", back.Fragments(fragmentID, 1000)) {
				n.verdict(out, packet.Unspec)
				n.same(out.Frame[packet.EthLen:], want[i][packet.EthLen:])
			}
			direct := directA(f, openers[2])
			n.put(n.maps.Flows, direct, 0)
			frames := direct.in.Reverse().With(datagram).Fragments(fragmentID+1, 1000)
			for i, out := range n.arrive("to_uplink", frames) {
				n.verdict(out, packet.Unspec)
				n.same(out.Frame, frames[i])
			}
			n.notDropped()
		}
	})
}

// A request whose fragments the fast path leaves to the stack is answered as it came.
func TestPrivilegedMasqueradeFragmentedRequest(t *testing.T) {
	eachFamily(t, func(n *node, f family) {
		n.masks(4)
		call := between(f.client, f.a, udp).With(datagram)
		for _, out := range n.arrive("from_uplink", call.Fragments(fragmentID, 1000)) {
			n.verdict(out, packet.Unspec)
		}
		back := call.Reverse().With([]byte("short"))
		n.passed(n.toUplink(back), back)
		n.notDropped()
	})
}
