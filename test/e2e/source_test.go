// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// S1, IP part: what a pod sends from another's address or a made-up one reaches
// nobody and is counted as `source`.
func TestPrivilegedS1Source(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	node, outside := c.Nodes[0], c.Outside()
	victim, onVictim := serve(t, node, netns.PodSpec{Name: "victim", Ports: netns.Both(8080, 80)})
	liar := node.Add(t, netns.PodSpec{Name: "liar"})
	onOutside, onHost := outside.Serve(t, 80), node.Serve(t, 80)
	liar.IP(t, "addr add 192.0.2.66/32 dev lo", "addr add 2001:db8::66/128 dev lo nodad",
		fmt.Sprintf("addr add %s/32 dev lo", victim.V4), fmt.Sprintf("addr add %s/128 dev lo nodad", victim.V6))
	// The victim's address is the liar's own now, so it is called by its hostPort.
	targets := []struct {
		name string
		at   func(int) netip.Addr
		port uint16
		srv  *netns.Server
	}{
		{"Outside", outside.Addr, 80, onOutside},
		{"Host", node.Uplinks[0].Addr, 80, onHost},
		{"HostPort", node.Uplinks[0].Addr, 8080, onVictim},
	}
	madeUp := map[int]netip.Addr{4: netip.MustParseAddr("192.0.2.66"), 6: netip.MustParseAddr("2001:db8::66")}
	for _, v := range families {
		for _, source := range []netip.Addr{madeUp[v], victim.Addr(v)} {
			for _, to := range targets {
				t.Run(fmt.Sprintf("%s/%s", to.name, source), func(t *testing.T) {
					lie(t, node, liar.NS, netns.Call{
						Proto: "udp", From: netip.AddrPortFrom(source, 0), To: netip.AddrPortFrom(to.at(v), to.port),
					}, to.srv)
				})
			}
		}
		ask(t, liar.NS, netns.Call{
			Proto: "udp", From: netip.AddrPortFrom(liar.Addr(v), 0), To: netip.AddrPortFrom(outside.Addr(v), 80),
		}, want{server: outside.Name, remote: only(liar.Addr(v))})
	}
}

// lie sends one datagram with a forged source, waits until it is counted and
// proves, by an honest one behind it, that the server never saw it.
func lie(t *testing.T, n *netns.Node, from *netns.NS, c netns.Call, srv *netns.Server) {
	t.Helper()
	before := drops(t, n, "source")
	f, err := from.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Send(t.Name()); err != nil {
		t.Fatal(err)
	}
	err = netns.Poll(func() error {
		if now := drops(t, n, "source"); now != before+1 {
			return fmt.Errorf("source drops: want %d, got %d", before+1, now)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", c, err)
	}
	if srv.Has(t.Name()) {
		t.Errorf("%s: want it dropped, but %s has it", c, srv.Name)
	}
}
