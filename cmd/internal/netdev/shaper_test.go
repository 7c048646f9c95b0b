// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// shapers runs a test once for each kind of shaper that the kernel has. It runs on a
// thread of its own, which t.Fatal must not end: must panics.
func shapers(t *testing.T, f func(p *pipe, flows *FlowQueues)) {
	for kind, flows := range map[string]*FlowQueues{
		"tbf":      nil,
		"fq_codel": {Target: time.Minute, Interval: time.Minute, Memory: 1 << 20}, // CoDel drops nothing,
	} {
		t.Run(kind, func(t *testing.T) {
			if has, err := new(Handle).HasQdisc(kind); err != nil || !has {
				t.Skip("kernel without fq_codel", err)
			}
			p := newPipe(t)
			err := p.from.Do(func() (err error) {
				defer func() {
					if r := recover(); r != nil {
						err = fmt.Errorf("%v", r)
					}
				}()
				h, err := Open()
				if err != nil {
					return err
				}
				defer h.Close()
				p.h = h
				f(p, flows)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// pipe is a device and a socket that receives what it sends.
type pipe struct {
	*testing.T
	from  *netns.NS
	h     *Handle
	index int
	to    *net.UDPConn
}

func newPipe(t *testing.T) *pipe {
	from, to := netns.New(t, "from"), netns.New(t, "to")
	from.IP(t, "link add va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b netns "+to.Path(),
		"addr add 10.0.0.1/24 dev va", "link set va up", "neigh add 10.0.0.2 lladdr 02:00:00:00:00:0b dev va")
	to.IP(t, "addr add 10.0.0.2/24 dev vb", "link set vb up")
	p := &pipe{T: t, from: from}
	err := to.Do(func() (err error) {
		if p.to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 9}); err != nil {
			return err
		}
		raw, err := p.to.SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.to.Close() })
	in(t, from, func(h *Handle) {
		l, err := h.LinkNamed("va")
		if err == nil {
			err = h.AwaitReady(l.Index)
		}
		if err != nil {
			t.Error(err)
		}
		p.index = l.Index
	})
	return p
}

// send sends datagrams of 1042 bytes on the wire.
func (p *pipe) send(n int) {
	p.Helper()
	c, err := net.Dial("udp4", "10.0.0.2:9")
	p.must(err)
	defer c.Close()
	for range n {
		_, err := c.Write(make([]byte, 1000))
		p.must(err)
	}
}

// sendUntil sends small datagrams and counts them.
func (p *pipe) sendUntil(stop chan struct{}) (n int) {
	err := p.from.Do(func() error {
		c, err := net.Dial("udp4", "10.0.0.2:9")
		if err != nil {
			return err
		}
		defer c.Close()
		for ; ; n++ {
			select {
			case <-stop:
				return nil
			default:
			}
			if _, err := c.Write(make([]byte, 10)); err != nil {
				return err
			}
		}
	})
	if err != nil {
		p.Error(err)
	}
	return n
}

// receive counts what arrives until n have, or none does for a second.
func (p *pipe) receive(n int) (got int, took time.Duration) {
	p.Helper()
	began := time.Now()
	for buf := make([]byte, 2000); got < n; got++ {
		_ = p.to.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := p.to.Read(buf); err != nil {
			break
		}
	}
	return got, time.Since(began)
}

func (p *pipe) must(err error) {
	if err != nil {
		panic(err)
	}
}

func (p *pipe) tc(args string) string {
	out, err := p.from.Run("", append([]string{"tc"}, strings.Fields(args)...)...)
	p.must(err)
	return out
}

func (p *pipe) expect(rate uint64, flows *FlowQueues) {
	p.Helper()
	now, err := p.h.ReadShaper(p.index)
	now.Backlog = 0
	if want := (ShaperState{Rate: rate, Ours: true, Flows: flows != nil}); err != nil || now != want {
		p.Errorf("got %+v, %v, want %+v", now, err, want)
	}
}

func TestPrivilegedShaper(t *testing.T) {
	shapers(t, func(p *pipe, flows *FlowQueues) {
		for range 2 {
			p.must(p.h.OpenShaper(p.index))
			if now, err := p.h.ReadShaper(p.index); err != nil || now != (ShaperState{}) {
				p.Errorf("no shaper: got %+v, %v", now, err)
			}
		}
		p.must(p.h.addShaper(p.index, Shaper{Rate: 1250000, Burst: 1 << 16, Queue: 1 << 17, Flows: flows}))
		p.expect(1250000, flows)
		p.send(1) // counted by a qdisc that stays
		for _, rate := range []uint64{6 << 30, 125, 125e12} {
			p.must(p.h.ChangeShaper(p.index, Shaper{Rate: rate, Burst: 1 << 16, Queue: 1 << 17, Flows: flows}))
			p.expect(rate, flows)
		}
		for range 2 {
			p.must(p.h.OpenShaper(p.index))
			p.expect(0, flows)
		}
		if out := p.tc("-s qdisc show dev va"); strings.Contains(out, "Sent 0 bytes") {
			p.Errorf("a qdisc was made anew: %s", out)
		}
		if _, err := p.h.ReadShaper(4711); !errors.Is(err, unix.ENODEV) {
			p.Errorf("no device: got %v", err)
		}
	})
}

// A burst of one packet is enough for it, whatever the rate is rounded to.
func TestPrivilegedShaperBurstOfOne(t *testing.T) {
	shapers(t, func(p *pipe, flows *FlowQueues) {
		for _, rate := range []uint64{187500, 187501, 200003, 12e9, 100e9} {
			p.must(p.h.ChangeShaper(p.index, Shaper{Rate: rate, Burst: 1042, Queue: 1042, Flows: flows}))
			p.send(1)
			if got, _ := p.receive(1); got != 1 {
				p.Errorf("at %d byte/s a packet as long as the burst does not pass", rate)
			}
		}
	})
}

// Nothing that waits is lost by a change, and it does not hold back what comes after.
func TestPrivilegedShaperChangeLosesNothing(t *testing.T) {
	const datagrams = 60
	for _, tt := range []struct {
		name        string
		from, to    uint64 // byte/s
		most        time.Duration
		atOldRate   time.Duration
		queueBefore uint64
	}{
		{"raised", 100e3, 10e6, 300 * time.Millisecond, 620 * time.Millisecond, 100e3},
		{"lowered", 100e3, 10e3, 300 * time.Millisecond, 6 * time.Second, 100e3},
		{"lifted", 100e3, 0, 300 * time.Millisecond, 620 * time.Millisecond, 100e3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shapers(t, func(p *pipe, flows *FlowQueues) {
				p.must(p.h.addShaper(p.index, Shaper{Rate: tt.from, Burst: 3028, Queue: tt.queueBefore, Flows: flows}))
				p.send(datagrams)
				if tt.to == 0 {
					p.must(p.h.OpenShaper(p.index))
				} else {
					p.must(p.h.ChangeShaper(p.index, Shaper{Rate: tt.to, Burst: 3028, Queue: 12e3, Flows: flows}))
				}
				p.expect(tt.to, flows)
				if got, took := p.receive(datagrams); got != datagrams || took > tt.most {
					p.Errorf("%d of %d arrived, in %v", got, datagrams, took)
				}
			})
		})
	}
}

// A segment that is larger than the burst that there is now does not block the way.
func TestPrivilegedShaperLetsGoSegments(t *testing.T) {
	shapers(t, func(p *pipe, flows *FlowQueues) {
		p.must(p.h.addShaper(p.index, Shaper{Rate: 1e6, Burst: 68 << 10, Queue: 300e3, Flows: flows}))
		c, err := net.Dial("udp4", "10.0.0.2:9")
		p.must(err)
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		p.must(err)
		p.must(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) }))
		p.must(err)
		for range 4 {
			_, err := c.Write(make([]byte, 60_000))
			p.must(err)
		}
		p.must(p.h.ChangeShaper(p.index, Shaper{Rate: 100e3, Burst: 3028, Queue: 12e3, Flows: flows}))
		p.expect(100e3, flows)
		if got, took := p.receive(240); got != 240 {
			p.Errorf("%d of 240 arrived in %v", got, took)
		}
		p.send(5)
		if got, took := p.receive(5); got != 5 {
			p.Errorf("%d of 5 arrived after them in %v", got, took)
		}
	})
}

// Nor does one that what is smaller stands before.
func TestPrivilegedShaperLetsGoLaterSegments(t *testing.T) {
	shapers(t, func(p *pipe, flows *FlowQueues) {
		p.must(p.h.addShaper(p.index, Shaper{Rate: 50e3, Burst: 42e3, Queue: 300e3, Flows: flows}))
		c, err := net.Dial("udp4", "10.0.0.2:9")
		p.must(err)
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		p.must(err)
		p.must(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) }))
		p.must(err)
		for _, size := range []int{38_000, 1000, 1000, 1000, 1000, 1000, 1000, 28_000} { // the first empties the bucket
			_, err := c.Write(make([]byte, size))
			p.must(err)
		}
		narrow := Shaper{Rate: 100e3, Burst: 3028, Queue: 12e3, Flows: flows}
		p.must(p.h.setShaper(p.index, narrow)) // as if all that had come behind the flush
		p.must(p.h.narrow(p.index, narrow, false))
		p.expect(100e3, flows)
		if got, took := p.receive(72); got != 72 {
			p.Errorf("%d of 72 arrived in %v\n%s", got, took, p.tc("-s qdisc show dev va"))
		}
	})
}

// Neither is anything lost when a limit comes and goes while datagrams pass.
func TestPrivilegedShaperComesAndGoes(t *testing.T) {
	shapers(t, func(p *pipe, flows *FlowQueues) {
		s := Shaper{Rate: 1e9, Burst: 1 << 20, Queue: 1 << 20, Flows: flows}
		p.must(p.h.ChangeShaper(p.index, s))
		stop, sent, received := make(chan struct{}), make(chan int), make(chan int)
		go func() { sent <- p.sendUntil(stop) }()
		go func() { n, _ := p.receive(math.MaxInt); received <- n }()
		for range 100 {
			p.must(p.h.OpenShaper(p.index))
			p.must(p.h.ChangeShaper(p.index, s))
		}
		close(stop)
		n, got := <-sent, <-received
		if n < 10 || got != n {
			p.Errorf("%d of %d arrived", got, n)
		}
	})
}

// What somebody else put at the root gives way to a limit, and is not ours to remove.
func TestPrivilegedShaperForeign(t *testing.T) {
	shapers(t, func(p *pipe, flows *FlowQueues) {
		for _, foreign := range []string{"pfifo", "handle 4355: pfifo", "tbf rate 1mbit burst 10k limit 10k", "handle 4355: tbf rate 1mbit burst 10k limit 10k"} {
			_, _ = p.from.Run("", "tc", "qdisc", "del", "dev", "va", "root")
			p.tc("qdisc add dev va root " + foreign)
			p.must(p.h.ChangeShaper(p.index, Shaper{Rate: 1e6, Burst: 1 << 16, Queue: 1 << 17, Flows: flows}))
			p.expect(1e6, flows)
		}
		p.tc("qdisc del dev va root")
		p.tc("qdisc add dev va root pfifo")
		p.must(p.h.OpenShaper(p.index))
		if root, err := p.h.qdisc(p.index, netlink.HANDLE_ROOT); err != nil || root.kind != "pfifo" {
			p.Errorf("root is %+v, %v", root, err)
		}
	})
}

func TestPrivilegedHasQdisc(t *testing.T) {
	ns := netns.New(t, "node")
	in(t, ns, func(h *Handle) {
		for kind, want := range map[string]bool{"tbf": true, "pfifo": true, "nosuch": false} {
			if has, err := h.HasQdisc(kind); err != nil || has != want {
				t.Errorf("%s: got %v, %v", kind, has, err)
			}
		}
		if after, _ := ns.Run("", "tc", "qdisc"); strings.Contains(after, "tbf") || strings.Contains(after, "pfifo") {
			t.Error("a device of the node was changed: " + after)
		}
		err := modify(func(netlink.Qdisc) error { return unix.ENOENT }, tbf(1, wideOpen()))
		if !errors.Is(err, ErrNoQdisc) || !strings.Contains(fmt.Sprint(err), "sch_tbf") {
			t.Errorf("a missing qdisc is %v", err)
		}
	})
}
