// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// attacker is a pod with a limit and with CAP_NET_ADMIN in its namespace, on a node of
// its own, so that what leaves the node is its.
type attacker struct {
	*testing.T
	pod, peer *netns.Pod
	node      *netns.Node
	outside   *netns.Peer
	rate      uint64
	own, host packet.MAC // ends of its wire
	after     []func()   // ends the attack that is going on

	meters   []*meter    // behind from_pod
	back     *meter      // towards the pod
	answered atomic.Bool // count what came back since it was at ignored
	ignored  uint64
}

// attack makes what is called again and again until the attack ends, each in a goroutine
// of its own.
type attack func(a *attacker) []func() error

// discard is the port that nobody answers on.
const discard = 9

const quiet = `table inet quiet {
	chain input {
		type filter hook input priority 0; policy accept;
		udp dport 9 drop
		tcp dport 9 drop
	}
}
`

func newAttacker(t *testing.T, c *cluster, node *netns.Node, rate uint64) *attacker {
	t.Helper()
	a := &attacker{T: t, node: node, outside: c.Outside(), rate: rate}
	a.pod = node.Add(t, netns.PodSpec{Name: fmt.Sprintf("attacker%d", node.Index), Bandwidth: &netns.Bandwidth{EgressRate: rate}})
	a.peer = node.Add(t, netns.PodSpec{Name: fmt.Sprintf("peer%d", node.Index)})
	a.own, a.host = mac(t, a.pod.Inside.MAC), mac(t, a.pod.Host.MAC)
	for _, ns := range []*netns.NS{node.NS, a.peer.NS} {
		ns.MustRun(t, quiet, "nft", "-f", "-")
	}
	return a
}

// targets are where it sends to, of one family.
func (a *attacker) targets(v int) []netip.Addr {
	return []netip.Addr{a.outside.Addr(v), a.peer.Addr(v), a.node.Uplinks[0].Addr(v)}
}

func (a *attacker) packet(to netip.Addr, tr packet.Transport, payload int) packet.Packet {
	v := 4
	if to.Is6() {
		v = 6
	}
	return packet.Packet{DstMAC: a.host, SrcMAC: a.own, Src: a.pod.Addr(v), Dst: to, Transport: tr, Payload: make([]byte, payload)}
}

// bursts sends frames past the queue, from both processors.
func (a *attacker) bursts(frames [][]byte) []func() error {
	var all []func() error
	for range 2 {
		link := a.pod.Link(a, a.pod.IfName)
		a.after = append(a.after, link.Close)
		all = append(all, func() error { return link.Burst(frames) })
	}
	return all
}

// storm is an attack that goes on.
type storm struct {
	quit chan struct{}
	busy sync.WaitGroup
}

func (a *attacker) launch(what attack) *storm {
	a.Helper()
	s := &storm{quit: make(chan struct{})}
	for i, send := range what(a) {
		s.busy.Go(func() {
			sent := 0
			var failed error
			for {
				select {
				case <-s.quit:
					if sent == 0 && !errors.Is(failed, unix.EINVAL) { // EINVAL: this kernel does not cut such
						a.Errorf("sender %d of the attack sent nothing: %v", i, failed)
					}
					return
				default:
				}
				if err := send(); err != nil {
					failed = err
					pause := unix.NsecToTimespec(int64(time.Millisecond))
					_ = unix.Nanosleep(&pause, nil)
					continue
				}
				sent++
			}
		})
	}
	return s
}

func (a *attacker) end(s *storm) {
	close(s.quit)
	s.busy.Wait()
	for _, f := range a.after {
		f()
	}
	a.after = nil
}

// segmenter sends datagrams of 64 kB that are cut into such pieces.
func (a *attacker) segmenter(from *netns.NS, to netip.Addr, size, pieces int) func() error {
	a.Helper()
	var conn *net.UDPConn
	err := from.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: to.AsSlice(), Port: discard})
		return err
	})
	if err != nil {
		a.Fatal(err)
	}
	a.after = append(a.after, func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		a.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
	if err != nil {
		a.Fatalf("UDP_SEGMENT: %v", err)
	}
	buf := make([]byte, size*pieces)
	return func() error {
		_, err := conn.Write(buf)
		return err
	}
}

// cutter sends a raw packet that says itself how it is to be cut.
func (a *attacker) cutter(to netip.Addr, tr packet.Transport, payload, size int) func() error {
	a.Helper()
	fd, index := -1, 0
	err := a.pod.Do(func() error {
		i, err := net.InterfaceByName(a.pod.IfName)
		if err != nil {
			return err
		}
		index = i.Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
	})
	if err != nil {
		a.Fatal(err)
	}
	a.after = append(a.after, func() { _ = unix.Close(fd) })
	v, frame := partial(a.packet(to, tr, payload), size)
	w := &wireEnd{fd: fd, index: index}
	return func() error { return w.send(v, frame) }
}

// load starts streams whose bytes do not stop at the limit by themselves.
func (a *attacker) load(streams ...netns.Stream) {
	a.Helper()
	for _, s := range streams {
		s.From, s.Offer = a.pod.NS, max(3*a.rate, 5e6)
		r, err := s.Start()
		for tries := 1; err != nil && tries < 3; tries++ { // the streams before it may starve it for seconds
			r, err = s.Start()
		}
		if err != nil {
			a.Errorf("%s: %v", s, err)
			continue
		}
		a.after = append(a.after, r.Stop)
	}
}
