// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// group is pools that serve the same pods: all of a family that the node takes blocks of
// unasked, or one that pods name.
type group struct {
	pools []pool // blocks are claimed from the first that has one
	pods  []pod  // of this node that are served, or will be
	own   bool   // unasked
}

func (g group) has(b block) bool {
	return slices.ContainsFunc(g.pools, func(p pool) bool { return p.name == b.object.Spec.Pool && p.prefix.Overlaps(b.prefix) })
}

func (g group) String() string {
	names := make([]string, 0, len(g.pools))
	for _, p := range g.pools {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// takePoolBlocks claims as many blocks as the node's pods need, and gives back what they do not.
func (p *pass) takePoolBlocks(ctx context.Context) error {
	groups := append(p.unaskedPools(), p.namedPools()...)
	var errs []error
	for _, g := range groups {
		errs = append(errs, p.serve(ctx, g))
	}
	for _, b := range p.own() {
		name := b.object.Spec.Pool
		wanted := slices.ContainsFunc(groups, func(g group) bool { return g.has(b) })
		if pool, ok := p.pools[name]; ok && pool.usable() && !wanted && !p.lasts("unwanted "+name, p.pace.idle) {
			p.give(b)
		}
	}
	return errors.Join(errs...)
}

// unaskedPools are those whose selector the node matches, by family.
func (p *pass) unaskedPools() (groups []group) {
	if p.Mode != RangesPools {
		return nil
	}
	var families [2]group
	for _, name := range slices.Sorted(maps.Keys(p.pools)) {
		pool := p.pools[name]
		if pool.wrong != "" {
			p.fault("BadPool", "pool %s: %s", name, pool.wrong)
		} else if !pool.disabled && pool.selector.Matches(p.self.labels) {
			f := &families[pool.prefix.Addr().BitLen()/128]
			f.pools = append(f.pools, pool)
		}
	}
	var pods []pod
	for _, pod := range p.pods {
		if !pod.done && p.poolsOf(pod) == nil {
			pods = append(pods, pod)
		}
	}
	for _, f := range families {
		if len(f.pools) > 0 {
			groups = append(groups, group{f.pools, pods, true})
		}
	}
	if len(groups) == 0 {
		p.fault("NoPool", "no enabled pool has a node selector that matches this node")
	}
	return groups
}

// namedPools are those that pods of this node name, by their own annotation or their namespace's.
func (p *pass) namedPools() (groups []group) {
	pods := map[string][]pod{}
	for _, pod := range p.pods {
		if pod.done {
			continue
		}
		for _, name := range p.poolsOf(pod) {
			pods[name] = append(pods[name], pod)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		switch from, ok := p.pools[name]; {
		case !ok:
			p.fault("NoPool", "pods of this node name pool %s, which does not exist", name)
		case from.wrong != "":
			p.fault("BadPool", "pool %s: %s", name, from.wrong)
		case from.disabled:
			p.fault("PoolDisabled", "pods of this node name pool %s, which is disabled", name)
		default:
			groups = append(groups, group{[]pool{from}, pods[name], false})
		}
	}
	return groups
}

// poolsOf gives the pools that a pod's addresses come from; nil: what comes unasked.
func (p *pass) poolsOf(pod pod) []string {
	if len(pod.pools) > 0 {
		return pod.pools
	}
	return p.namespaces[pod.namespace].pools
}

// serve keeps at least a quarter of a block free for a group's pods.
func (p *pass) serve(ctx context.Context, g group) error {
	var given, spare []block
	var errs []error
	for _, b := range p.own() {
		switch {
		case !g.has(b):
		case p.released[b.object.Name]:
			spare = append(spare, b)
		default:
			errs = append(errs, p.refresh(ctx, b, b.object.Spec.Pool))
			given = append(given, b)
		}
	}
	free := p.freeOf(given) - p.demand(g, given)
	need := max(1, g.pools[0].capacity()/4)
	for p.here && (free < need || len(given) == 0) {
		var b block
		var ok bool
		if len(spare) > 0 {
			b, ok, spare = spare[0], true, spare[1:]
			delete(p.released, b.object.Name)
		} else {
			var err error
			if b, ok, err = p.claimFrom(ctx, g); err != nil {
				errs = append(errs, err)
				break
			}
		}
		if !ok {
			if free < 1 {
				p.fault("PoolExhausted", "pool %s: no block is left, and this node has no free address of its own", g)
			}
			break
		}
		given = append(given, b)
		free += p.freeOf([]block{b})
	}
	given = p.giveUp(given, free, need)
	for _, b := range given {
		p.give(b)
		if g.own {
			p.ranges = append(p.ranges, b.prefix)
		}
	}
	return errors.Join(errs...)
}

// freeOf counts the addresses of blocks that no pod has.
func (p *pass) freeOf(blocks []block) (n int64) {
	for _, b := range blocks {
		n += p.capacityOf(b) - p.usedOf(b)
	}
	return n
}

// demand is how many of a group's pods will take an address of the blocks: those without one,
// less the addresses that are held and not told yet.
func (p *pass) demand(g group, blocks []block) int64 {
	var waiting, told, used int64
	for _, pod := range g.pods {
		switch in := func(a netip.Addr) bool {
			return slices.ContainsFunc(blocks, func(b block) bool { return b.prefix.Contains(a) })
		}; {
		case len(pod.addrs) == 0:
			waiting++
		case slices.ContainsFunc(pod.addrs, in):
			told++
		}
	}
	for _, b := range blocks {
		used += p.usedOf(b)
	}
	return max(0, waiting-max(0, used-told))
}

// giveUp lets go of one block that nobody has had an address of for a while, if another quarter
// of a block stays free without it.
func (p *pass) giveUp(given []block, free, need int64) []block {
	for i, b := range slices.Backward(given) {
		if size := p.capacityOf(b); len(given) < 2 || p.usedOf(b) > 0 || free-size < 2*need {
			continue
		}
		if p.lasts("surplus "+b.prefix.String(), p.pace.idle) {
			p.released[b.object.Name] = true
			return slices.Delete(given, i, i+1)
		}
	}
	return given
}
