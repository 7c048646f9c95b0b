// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/netns"
)

// forwardDrop lets nothing through the stack.
const forwardDrop = `table inet filter { chain forward { type filter hook forward priority 0; policy drop; }; }`

// F3: an idle connection whose rows were evicted goes on when its client speaks, or is
// reset at once; when its server speaks first one end is reset, and where FORWARD drops
// its packet, the client's next word ends the wait. Nothing hangs, and no answer comes
// from anybody else.
func TestPrivilegedF3Evicted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, rules string }{{"Plain", ""}, {"Invalid", dropInvalid}, {"ForwardDrop", forwardDrop}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := wire(t, netns.Layout{})
			node, outside := c.Nodes[0], c.Outside()
			if tc.rules != "" {
				node.MustRun(t, tc.rules, "nft", "-f", "-")
			}
			a, srv := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
			b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: masquerading()})
			onOutside := outside.Serve(t, 80)
			up := node.Uplinks[0].Addr
			var all []*idle
			for _, path := range []struct {
				name string
				from *netns.NS
				src  func(int) netip.Addr
				to   func(int) netip.Addr
				port uint16
				srv  *netns.Server
			}{
				{"OutsideHostPort", outside.NS, outside.Addr, up, 8080, srv},
				{"OutsidePod", outside.NS, outside.Addr, a.Addr, 80, srv},
				{"PodHostPort", b.NS, b.Addr, up, 8080, srv},
				{"PodPod", b.NS, b.Addr, a.Addr, 80, srv},
				{"SelfHostPort", a.NS, a.Addr, up, 8080, srv},
				{"HostHostPort", node.NS, up, up, 8080, srv},
				{"HostLoopback", node.NS, at(loopback), at(loopback), 8080, srv},
				{"Masquerade", b.NS, b.Addr, outside.Addr, 80, onOutside},
			} {
				if path.name == "Masquerade" && tc.rules == forwardDrop {
					continue // it passes the stack
				}
				for _, v := range families {
					call := call("tcp", path.to(v), path.port)
					for _, evicted := range []string{"both", "request", "reply"} {
						for _, first := range []string{"client", "server"} {
							// Rows are told apart by the port.
							call.From = netip.AddrPortFrom(path.src(v), uint16(10000+len(all)))
							i := &idle{name: fmt.Sprintf("%s/%d/%s/%s", path.name, v, evicted, first), evicted: evicted, first: first, node: node, srv: path.srv}
							i.open(t, path.from, call)
							all = append(all, i)
						}
					}
				}
			}
			time.Sleep(1200 * time.Millisecond) // idle is who was silent for a second
			for _, i := range all {
				t.Run(i.name, func(t *testing.T) {
					if err := i.evict(); err != nil {
						t.Fatal(err)
					}
					if err := i.speak(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// idle is a connection of which the LRU takes both rows or one; then its client or its
// server speaks first.
type idle struct {
	name, evicted, first string

	node *netns.Node
	srv  *netns.Server
	flow *netns.Flow
}

// open leaves an answered connection, whose server holds another answer back if it is
// to speak first.
func (i *idle) open(t *testing.T, from *netns.NS, c netns.Call) {
	t.Helper()
	var err error
	if i.flow, err = from.Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.flow.Reset)
	_, err = i.flow.Ask()
	if err == nil && i.first == "server" {
		if _, err = i.flow.Send(i.name); err == nil {
			err = i.srv.Held(i.name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (i *idle) evict() error {
	mine := ofPort(i.flow.LocalPort())
	gone, err := evict(i.node, func(k *bpf.DatapathTuple, f *bpf.DatapathFlow) bool {
		reply := f.Flags&bpf.DatapathFlowFlagFLOW_REPLY != 0
		return mine(k, f) && (i.evicted == "both" || (i.evicted == "reply") == reply)
	})
	if err == nil && gone == 0 {
		err = errors.New("there was no row to evict")
	}
	return err
}

// speak has the server speak, if it is its turn, and then the client, who has to be
// answered or reset before anything would be sent again.
func (i *idle) speak() error {
	if i.first == "server" {
		if err := i.srv.Release(i.name); err != nil {
			return err
		}
	}
	start := time.Now()
	r, err := i.flow.Ask()
	took := time.Since(start)
	switch {
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
	case err != nil:
		return fmt.Errorf("want an answer or a reset, got %w", err)
	case r.Server != i.srv.Name:
		return fmt.Errorf("want an answer by %s, got one by %s", i.srv.Name, r.Server)
	}
	if took > stall {
		return fmt.Errorf("want an answer or a reset within %v, it took %v (%v)", stall, took, err)
	}
	return nil
}
