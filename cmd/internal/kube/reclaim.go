// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reclaim deletes the blocks of nodes that are gone, and of whose pods none is left in the API
// server, which may outlive the Node. Any agent may do it; they take turns, so that as a rule
// one does.
func (p *pass) reclaim(ctx context.Context) error {
	gone := map[string][]block{}
	for _, prefix := range p.index.sorted() {
		b := p.index.blocks[prefix]
		if _, ok := p.nodes[b.node()]; !ok && b.node() != p.NodeName {
			gone[b.node()] = append(gone[b.node()], b)
		}
	}
	var errs []error
	for name, blocks := range gone {
		gone := "gone " + name
		if p.lasts(gone, p.ReclaimAfter+p.turnFor(name)) && p.passed(p.done[gone], p.ReclaimAfter) {
			p.done[gone] = p.now
			p.passed(p.now, p.ReclaimAfter) // if a pod is left, again then
			errs = append(errs, p.reclaimFrom(ctx, name, blocks))
		}
	}
	return errors.Join(errs...)
}

// turnFor is how long this node leaves a gone one's blocks to others: each has its own order.
func (p *pass) turnFor(gone string) time.Duration {
	rank := func(name string) uint64 {
		h := fnv.New64a()
		h.Write([]byte(gone + "/" + name))
		return h.Sum64()
	}
	before, mine := 0, rank(p.NodeName)
	for name := range p.nodes {
		if rank(name) < mine {
			before++
		}
	}
	return time.Duration(min(before, 12)) * p.pace.turn
}

func (p *pass) reclaimFrom(ctx context.Context, name string, blocks []block) error {
	bounded, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	_, err := p.Client.CoreV1().Nodes().Get(bounded, name, metav1.GetOptions{})
	if err == nil {
		return nil // it is back, and the watch will tell
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reclaim blocks of node %s: %w", name, err)
	}
	addrs, err := p.podsOf(bounded, name)
	if err != nil {
		return fmt.Errorf("reclaim blocks: %w", err)
	}
	var errs []error
	for _, b := range blocks {
		if slices.ContainsFunc(addrs, b.prefix.Contains) {
			continue
		}
		errs = append(errs, p.remove(ctx, b))
	}
	return errors.Join(errs...)
}
