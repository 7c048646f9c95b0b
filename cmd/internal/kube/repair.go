// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// repair makes the cluster find each pod of this node: an address that is held outside the
// node's blocks gets one of its own, as long as it is held.
func (p *pass) repair(ctx context.Context) error {
	var errs []error
	stray := map[netip.Prefix]bool{}
	for a := range p.held {
		if covering := p.index.covering(single(a)); len(covering) == 0 || covering[0].node() != p.NodeName {
			stray[single(a)] = true
		}
	}
	for _, b := range p.own() {
		if p.isStray(b) && !stray[b.prefix] && p.needless(b) {
			errs = append(errs, p.remove(ctx, b))
		}
	}
	for s := range stray {
		b, ok := p.index.blocks[s]
		var err error
		if !ok {
			b, err = p.claim(ctx, s, "")
			errs = append(errs, err)
		}
		switch {
		case err != nil:
		case b.node() != p.NodeName:
			p.fault("AddressConflict", "%s is held here by %s, and by node %s", s.Addr(), p.held[s.Addr()].Container, b.node())
		default:
			errs = append(errs, p.refresh(ctx, b, ""))
		}
	}
	return errors.Join(errs...)
}

// needless says whether a block of one address may go although this node has the range around
// it: not while that gives no addresses, since then another node may have made the block in order
// to take the range over.
func (p *pass) needless(b block) bool {
	if _, held := p.held[b.prefix.Addr()]; !held {
		return true
	}
	around := p.index.covering(b.prefix)
	return p.active[around[0].prefix] && p.lasts("needless "+b.prefix.String(), p.pace.grace)
}

// isStray says whether a block is there for one address alone.
func (p *pass) isStray(b block) bool {
	return b.prefix.IsSingleIP() && b.object.Spec.Pool == "" && !slices.Contains(p.self.ranges, b.prefix)
}

// release gives back the blocks that give no addresses any more, once nobody has one of theirs;
// not at once, since an ADD may be under way that was begun when they did.
func (p *pass) release(ctx context.Context) error {
	var errs []error
	for _, b := range p.own() {
		if p.active[b.prefix] || p.isStray(b) {
			continue
		}
		errs = append(errs, p.refresh(ctx, b, b.object.Spec.Pool))
		if p.usedOf(b) == 0 && p.lasts("empty "+b.prefix.String(), p.pace.grace) {
			errs = append(errs, p.remove(ctx, p.index.blocks[b.prefix]))
		}
	}
	return errors.Join(errs...)
}
