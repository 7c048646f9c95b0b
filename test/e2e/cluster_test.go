// SPDX-License-Identifier: Apache-2.0

// Package e2e runs the built plugin on throwaway nodes and sends real traffic.
// Every test ends with a look at the tables (tables_test.go).
package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// cluster is the namespaces of one test, and what its packets may be dropped for.
type cluster struct {
	*netns.Net
	expected []string // drop reasons
}

// wire makes a cluster whose tables are checked when the test ends. Drops for
// other reasons than the expected ones fail it.
func wire(t *testing.T, l netns.Layout, expected ...string) *cluster {
	t.Helper()
	c := &cluster{Net: netns.Wire(t, l), expected: expected}
	for _, n := range c.Nodes {
		n.BeforeDel = c.checkCounters
		t.Cleanup(func() { c.checkEmpty(t, n) })
	}
	return c
}

// serve adds a pod that answers on port 80.
func serve(t *testing.T, n *netns.Node, s netns.PodSpec) (*netns.Pod, *netns.Server) {
	t.Helper()
	p := n.Add(t, s)
	return p, p.Serve(t, 80)
}

// families and protos are what every behaviour is tried with.
var (
	families = []int{4, 6}
	protos   = []string{"tcp", "udp", "udp4000"}
)

// each runs f for every family and protocol as a subtest ("tcp/4").
func each(t *testing.T, protos []string, f func(t *testing.T, proto string, family int)) {
	t.Helper()
	for _, p := range protos {
		for _, v := range families {
			t.Run(fmt.Sprintf("%s/%d", p, v), func(t *testing.T) { f(t, p, v) })
		}
	}
}

// call is one of the protos to an address; udp4000 is UDP that takes fragments.
func call(proto string, to netip.Addr, port uint16) netns.Call {
	c := netns.Call{Proto: proto, To: netip.AddrPortFrom(to, port)}
	if proto == "udp4000" {
		c.Proto, c.Size = "udp", 4000
	}
	return c
}

// want is what an answer has to say; zero values are not looked at.
type want struct {
	server string
	remote []netip.Addr // the client's address as the server may see it
	local  netip.AddrPort
}

// ask makes one call and checks the answer.
func ask(t *testing.T, from *netns.NS, c netns.Call, w want) {
	t.Helper()
	r, err := from.Ask(c)
	if err == nil {
		err = w.check(r)
	}
	if err != nil {
		t.Errorf("from %s: %s: want %s, got %v", from.Name, c, w, err)
	}
}

func (w want) check(r netns.Reply) error {
	switch {
	case r.Server != w.server,
		len(w.remote) > 0 && !slices.Contains(w.remote, r.Remote.Addr().WithZone("")),
		w.local.IsValid() && r.Local != w.local:
		return fmt.Errorf("an answer by %s at %s to %s", r.Server, r.Local, r.Remote)
	}
	return nil
}

func (w want) String() string {
	s := "an answer by " + w.server
	if w.local.IsValid() {
		s += " at " + w.local.String()
	}
	if len(w.remote) > 0 {
		s += fmt.Sprintf(" to %v", w.remote)
	}
	return s
}

// refuse makes a call that must not be answered.
func refuse(t *testing.T, from *netns.NS, c netns.Call) {
	t.Helper()
	c.Timeout = 300 * time.Millisecond
	if r, err := from.Ask(c); err == nil {
		t.Errorf("from %s: %s: want no answer, got one by %s at %s to %s", from.Name, c, r.Server, r.Local, r.Remote)
	}
}

// only is the list of one address.
func only(a netip.Addr) []netip.Addr { return []netip.Addr{a} }
