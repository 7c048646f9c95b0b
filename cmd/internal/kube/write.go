// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
)

// textOf gives a node's addresses as a block has them.
func textOf(addrs []netip.Addr) []string {
	via := make([]string, 0, len(addrs))
	for _, a := range addrs {
		via = append(via, a.String())
	}
	return via
}

// create makes a block a node's; if there is one of this range already, that one is given,
// whosever it is: this is the one place where two nodes meet.
func (p *pass) create(ctx context.Context, prefix netip.Prefix, spec v1alpha1.IPBlockSpec) (block, error) {
	ctx, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	wanted := &v1alpha1.IPBlock{Spec: spec}
	wanted.Name, wanted.Spec.CIDR = BlockName(prefix), prefix.String()
	got, err := p.Blocks.CreateBlock(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		got, err = p.Blocks.GetBlock(ctx, wanted.Name)
	} else if err == nil {
		p.Log.Info("block made", "block", wanted.Name, "node", spec.Node, "pool", spec.Pool)
	}
	if err != nil {
		return block{}, fmt.Errorf("claim %s: %w", prefix, err)
	}
	return p.took(got)
}

// claim is create for this node.
func (p *pass) claim(ctx context.Context, prefix netip.Prefix, pool string) (block, error) {
	return p.create(ctx, prefix, v1alpha1.IPBlockSpec{Pool: pool, Node: p.NodeName, Via: textOf(p.self.addrs)})
}

// update changes what a block is, if it still is as it was read.
func (p *pass) update(ctx context.Context, was *v1alpha1.IPBlock, spec v1alpha1.IPBlockSpec) (block, error) {
	ctx, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	wanted := was.DeepCopy()
	wanted.Spec = spec
	got, err := p.Blocks.UpdateBlock(ctx, wanted)
	if err != nil {
		return block{}, fmt.Errorf("change block %s: %w", was.Name, err)
	}
	p.Log.Info("block changed", "block", was.Name, "from", was.Spec.Node, "to", spec.Node, "via", spec.Via)
	return p.took(got)
}

// remove deletes a block that still is as it was read.
func (p *pass) remove(ctx context.Context, b block) error {
	ctx, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	if err := p.Blocks.DeleteBlock(ctx, b.object); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete block %s: %w", b.object.Name, err)
	}
	p.Log.Info("block deleted", "block", b.object.Name, "node", b.node())
	p.index.drop(b.prefix)
	delete(p.released, b.object.Name)
	delete(p.done, b.object.Name)
	return p.blocks.Delete(b.object)
}

// took makes the pass, and those to come, know what the API server answered.
func (p *pass) took(got *v1alpha1.IPBlock) (block, error) {
	b, ok := p.blocks.parse(got)
	if !ok {
		return b, fmt.Errorf("block %s has range %q, which is not that of its name", got.Name, got.Spec.CIDR)
	}
	p.index.put(b)
	return b, p.blocks.Update(got)
}
