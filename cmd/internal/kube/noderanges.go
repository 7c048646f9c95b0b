// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
)

// takeNodeRanges sees to it that the node has a block for each range that the cluster gave it.
func (p *pass) takeNodeRanges(ctx context.Context) error {
	if p.Mode != RangesNode {
		return nil
	}
	var errs []error
	for _, want := range p.self.ranges {
		if !givesAddresses(want) {
			p.fault("BadRange", "node.spec.podCIDRs: %s is too small to give addresses from", want)
			continue
		}
		b, ok := p.index.blocks[want]
		if p.here && (!ok || b.node() != p.NodeName) {
			var err error
			b, ok, err = p.settle(ctx, want)
			errs = append(errs, err)
		}
		if ok && b.node() == p.NodeName {
			errs = append(errs, p.refresh(ctx, b, ""))
			p.give(b)
			p.ranges = append(p.ranges, want)
		}
	}
	return errors.Join(errs...)
}

// givesAddresses says whether an IPAM plugin takes the range: of the smallest that it takes, one
// address is the range's own and one the gateway.
func givesAddresses(r netip.Prefix) bool { return r.Bits() <= r.Addr().BitLen()-2 }

// refresh writes where the node is reached, if that has changed and is known.
func (p *pass) refresh(ctx context.Context, b block, pool string) error {
	if !p.here || len(p.self.addrs) == 0 || b.object.Spec.Pool == pool && slices.Equal(b.via, p.self.addrs) {
		return nil
	}
	_, err := p.update(ctx, b.object, v1alpha1.IPBlockSpec{
		CIDR: b.object.Spec.CIDR, Pool: pool, Node: p.NodeName, Via: textOf(p.self.addrs)})
	return err
}

// settle makes a range this node's, after those who have it, or a wider one, were left the
// addresses that their pods hold: by blocks of one address each, which everybody finds before
// the range. False as long as that must wait.
func (p *pass) settle(ctx context.Context, want netip.Prefix) (b block, ok bool, err error) {
	holders := p.index.covering(want)
	if exact, is := p.index.blocks[want]; is {
		holders = append([]block{exact}, holders...)
	}
	holders = slices.DeleteFunc(holders, func(b block) bool { return b.node() == p.NodeName })
	for _, b := range holders {
		if slices.ContainsFunc(p.nodes[b.node()].ranges, want.Overlaps) {
			p.fault("RangeConflict", "range %s is given to this node and, as %s, to node %s", want, b.prefix, b.node())
			return b, false, nil
		}
	}
	if len(holders) > 0 && !p.lasts("taken "+want.String(), p.TakeoverDelay) {
		return b, false, nil
	}
	for _, holder := range holders {
		live, err := p.leave(ctx, holder, want)
		if err != nil {
			return b, false, fmt.Errorf("take over %s from node %s: %w", want, holder.node(), err)
		}
		if holder.prefix == want {
			b, err = p.update(ctx, live, v1alpha1.IPBlockSpec{CIDR: want.String(), Node: p.NodeName, Via: textOf(p.self.addrs)})
			return b, err == nil, err
		}
	}
	b, err = p.claim(ctx, want, "")
	return b, err == nil, err
}

var errChanged = errors.New("it has changed meanwhile")

// leave gives a node a block for each address that it holds of a range, and the block as it was
// then. Both what the node told and what the API server has of its pods count: either may be late.
func (p *pass) leave(ctx context.Context, holder block, within netip.Prefix) (*v1alpha1.IPBlock, error) {
	bounded, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	live, err := p.Blocks.GetBlock(bounded, holder.object.Name)
	if err != nil {
		return nil, err
	}
	if live.Spec.Node != holder.node() {
		_, err := p.took(live)
		return nil, errors.Join(errChanged, err)
	}
	addrs, err := p.podsOf(bounded, holder.node())
	if err != nil {
		return nil, err
	}
	for _, a := range live.Status.Allocations {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			addrs = append(addrs, addr)
		}
	}
	for _, a := range addrs {
		_, known := p.index.blocks[single(a)]
		_, mine := p.held[a]
		if known || mine || !within.Contains(a) || !holder.prefix.Contains(a) {
			continue
		}
		if _, err := p.create(ctx, single(a), v1alpha1.IPBlockSpec{Node: holder.node(), Via: live.Spec.Via}); err != nil {
			return nil, err
		}
	}
	return live, nil
}

// podsOf asks the API server for the addresses of the pods that a node has.
func (p *pass) podsOf(ctx context.Context, node string) (addrs []netip.Addr, err error) {
	list, err := p.Client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	for i := range list.Items {
		if pod, wanted := parsePod(&list.Items[i]); wanted && !pod.done {
			addrs = append(addrs, pod.addrs...)
		}
	}
	return addrs, nil
}
