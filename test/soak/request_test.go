// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/culvert-cni/culvert/test/netns"
)

// request is one call to the pod, or of the pod, by a way out of many, and wants the
// answer of who is called, to whom called.
func (p *slot) request(rng *rand.Rand) {
	if p.state != alive {
		return
	}
	p.soak.tally.requests.Add(1)
	s, v6 := p.soak, rng.IntN(2) == 1
	of := func(v4, v6addr netip.Addr) netip.Addr {
		if v6 {
			return v6addr
		}
		return v4
	}
	outside, up := s.net.Outside(), s.node.Uplinks[0]
	mine, theirs, host := of(p.v4, p.v6), of(outside.V4, outside.V6), of(up.V4, up.V6)
	call := netns.Call{Proto: []string{"tcp", "udp"}[rng.IntN(2)]}
	to := func(a netip.Addr, port int) { call.To = netip.AddrPortFrom(a, uint16(port)) }
	from, server, seen := outside.NS, p.server.Name, theirs
	switch rng.IntN(8) {
	case 0, 1:
		to(host, p.hostPort())
	case 2:
		to(mine, 80)
	case 3:
		from, seen = s.node.NS, netip.Addr{}
		to(host, p.hostPort())
	case 4: // itself, by its hostPort
		from, seen = p.ns, netip.Addr{}
		to(host, p.hostPort())
	case 5:
		from, server, seen = p.ns, outside.Name, mine
		if p.masked() {
			seen = host
		}
		to(theirs, 80)
	case 6:
		if call.Size = 1300; call.Proto == "udp" {
			call.Size = 3000 // fragments
		}
		to(host, p.hostPort())
	case 7:
		p.keep(host)
		return
	}
	r, err := from.Ask(call)
	if err == nil && (r.Server != server || seen.IsValid() && r.Remote.Addr() != seen) {
		err = fmt.Errorf("answer by %s to %s, want %s to %s", r.Server, r.Remote, server, seen)
	}
	if err != nil {
		s.fail("request from %s, pod %s: %s: %v", from.Name, p.id, call, err)
	}
}

// keep asks over a connection that stays open for as long as the pod is there.
func (p *slot) keep(host netip.Addr) {
	var err error
	if p.flow == nil {
		p.flow, err = p.soak.net.Outside().Open(netns.Call{Proto: "tcp", To: netip.AddrPortFrom(host, uint16(p.hostPort()))})
	}
	if err == nil {
		_, err = p.flow.Ask()
	}
	if err != nil {
		p.soak.fail("connection to pod %s: %v", p.id, err)
		p.hangUp()
	}
}
