// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

type state int

const (
	empty state = iota
	alive
	torn // a verb was killed: something of the pod may be there, nothing need be
)

// slot is the place of one pod after the other, which have ports, limits and masquerade
// of their place: so what there is of it is always the same.
type slot struct {
	soak *soak
	i    int

	mu       sync.Mutex
	state    state
	id       string
	births   int
	ns       *netns.NS
	server   *netns.Server
	flow     *netns.Flow // open since some time
	result   []byte
	v4, v6   netip.Addr
	departed []map[string]string // environments of pods whose namespaces are gone and whose DEL has yet to come
}

func newSlot(s *soak, i int) *slot { return &slot{soak: s, i: i} }

func (p *slot) hostPort() int { return 20000 + p.i }
func (p *slot) limited() bool { return p.i%2 == 0 }
func (p *slot) masked() bool  { return p.i%4 >= 2 }

func (p *slot) env() map[string]string {
	return map[string]string{"CNI_CONTAINERID": p.id, "CNI_NETNS": p.ns.Path(), "CNI_IFNAME": "eth0"}
}

func (p *slot) conf() map[string]any {
	conf := p.soak.node.Conf()
	runtime := map[string]any{"portMappings": netns.Both(p.hostPort(), 80)}
	if p.limited() {
		runtime["bandwidth"] = netns.Bandwidth{IngressRate: 50e6, IngressBurst: 1e6, EgressRate: 50e6, EgressBurst: 1e6}
	}
	conf["runtimeConfig"], conf["ipMasq"] = runtime, p.masked()
	return conf
}

func (p *slot) withResult() map[string]any {
	conf := p.conf()
	if p.result != nil {
		conf["prevResult"] = json.RawMessage(p.result)
	}
	return conf
}

// step does one thing to the pod, which is locked.
func (p *slot) step(rng *rand.Rand, n int) {
	switch {
	case p.state == empty:
		p.add(p.soak.kill(rng, "ADD"))
	case p.state == torn && rng.IntN(2) == 0:
		p.add(p.soak.kill(rng, "ADD"))
	case p.state == torn && rng.IntN(4) == 0:
		p.vanish()
	case p.state == torn:
		p.del(p.soak.kill(rng, "DEL"))
	case n < 15:
		p.del(p.soak.kill(rng, "DEL"))
	case n < 17:
		p.vanish()
	case n < 30:
		p.check(p.soak.kill(rng, "CHECK"))
	case n < 35 && p.limited():
		p.setLimits(rng, p.soak.kill(rng, "limits"))
	case n < 37:
		p.late(p.soak.kill(rng, "DEL"))
	default:
		p.request(rng)
	}
}

// add makes a pod, or makes the torn one whole.
func (p *slot) add(kill time.Duration) {
	if p.state == empty {
		if err := p.bear(); err != nil {
			p.soak.fail("make pod %d: %v", p.i, err)
			return
		}
	}
	out, err := p.soak.verb("ADD", kill, p.env(), p.conf())
	switch {
	case errors.Is(err, errKilled):
		p.state = torn
		return
	case err != nil:
		p.soak.fail("ADD %s: %v", p.id, err)
		p.state = torn
		return
	}
	var r netns.Result
	if err := json.Unmarshal(out, &r); err != nil || len(r.IPs) != 2 {
		p.soak.fail("ADD %s: result %q: %v", p.id, out, err)
	}
	p.result, p.v4, p.v6 = out, netip.Addr{}, netip.Addr{}
	for _, ip := range r.IPs {
		if a := ip.Address.Addr(); a.Is4() {
			p.v4 = a
		} else {
			p.v6 = a
		}
	}
	p.state = alive
}

// bear makes the namespace of another pod, with its server.
func (p *slot) bear() (err error) {
	p.births++
	p.id = fmt.Sprintf("s%d-%d", p.i, p.births)
	if p.ns != nil && p.births%2 == 0 { // every other one finds its predecessor's
		return nil
	}
	p.bury()
	if p.ns, err = netns.TryNew(fmt.Sprintf("pod%d", p.i)); err != nil {
		return err
	}
	p.server, err = p.ns.TryServe(80)
	return err
}

// bury closes the namespace.
func (p *slot) bury() {
	if p.server != nil {
		p.server.Close()
	}
	if p.ns != nil {
		p.ns.Close()
	}
	p.server, p.ns = nil, nil
}

func (p *slot) hangUp() {
	p.flow.Close()
	p.flow = nil
}

func (p *slot) del(kill time.Duration) {
	p.hangUp()
	_, err := p.soak.verb("DEL", kill, p.env(), p.withResult())
	if errors.Is(err, errKilled) {
		p.state = torn
		return
	}
	if err != nil {
		p.soak.fail("DEL %s: %v", p.id, err)
	}
	p.gone()
}

func (p *slot) gone() { p.state, p.result = empty, nil }

// vanish is a sandbox that is gone before its DEL.
func (p *slot) vanish() {
	p.hangUp()
	env := p.env()
	p.departed = append(p.departed, env)
	p.bury()
	p.gone()
}

// late is the DEL of one that vanished, after its successor's ADD.
func (p *slot) late(kill time.Duration) {
	for len(p.departed) > 0 {
		_, err := p.soak.verb("DEL", kill, p.departed[0], p.conf())
		if errors.Is(err, errKilled) {
			return
		}
		if err != nil {
			p.soak.fail("late DEL %v: %v", p.departed[0], err)
		}
		p.departed = p.departed[1:]
	}
}

// collected is after a GC that named what is alive alone.
func (p *slot) collected() {
	p.departed = nil
	if p.state == torn {
		p.gone()
	}
}

func (p *slot) check(kill time.Duration) {
	p.soak.again("CHECK "+p.id, kill, func(kill time.Duration) error {
		_, err := p.soak.verb("CHECK", kill, p.env(), p.withResult())
		return err
	})
}

func (p *slot) setLimits(rng *rand.Rand, kill time.Duration) {
	rate := fmt.Sprintf("%dM", 10+rng.IntN(90))
	p.soak.again("limits of "+p.id, kill, func(kill time.Duration) (err error) {
		for range mostTries {
			ctl := filepath.Join(p.soak.node.Bin.Dir, "culvertctl")
			cmd := p.soak.group.command(ctl, "--pin-path", p.soak.node.PinPath, "limits", "set", p.id, "--ingress", rate, "--egress", rate)
			if _, err = p.soak.run("limits", cmd, kill); err == nil || !strings.Contains(err.Error(), "try again") {
				break
			}
			p.soak.tally.busy.Add(1)
		}
		return err
	})
}

// mend makes the pod alive and sends what DELs are due.
func (p *slot) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != alive {
		p.add(0)
	}
	p.late(0)
}

// clear takes the pod away for good.
func (p *slot) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != empty {
		p.del(0)
	}
	p.late(0)
	p.bury()
}
