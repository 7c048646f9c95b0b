// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

var errContested = errors.New("another node has taken a part of it at the same time")

// claimFrom takes a block that nobody has. False: there is none.
func (p *pass) claimFrom(ctx context.Context, g group) (block, bool, error) {
	for _, pool := range g.pools {
		for {
			prefix, ok := p.freeBlock(pool)
			if !ok {
				break
			}
			b, err := p.claim(ctx, prefix, pool.name)
			if err != nil {
				return b, false, err
			}
			if b.node() != p.NodeName {
				continue // which now is known
			}
			if err := p.contest(ctx, pool, b); err != nil {
				return b, false, fmt.Errorf("claim %s: %w", prefix, err)
			}
			return b, true, nil
		}
	}
	return block{}, false, nil
}

// contest looks at a claim again where pools overlap, since then two nodes may take one
// address by blocks of different names: of two that do so at once, at least the later one sees the
// other, and goes.
func (p *pass) contest(ctx context.Context, from pool, b block) error {
	overlaps := func(other pool) bool { return other.name != from.name && other.prefix.Overlaps(from.prefix) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(p.pools)), overlaps) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	all, err := p.Blocks.ListBlocks(ctx)
	for i := range all {
		if all[i].Name == b.object.Name {
			continue
		}
		if other, tookErr := p.took(&all[i]); tookErr == nil && other.prefix.Overlaps(b.prefix) {
			err = errContested
		}
	}
	if err != nil {
		return errors.Join(err, p.remove(ctx, b))
	}
	return nil
}
