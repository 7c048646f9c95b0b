// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
)

// An object of the API server has its limits; the kernel's table has the whole truth.
const (
	mostAllocations = 4096
	mostReleased    = 256
)

// report writes the status of each of this node's blocks, if it differs, and not sooner than
// pace allows: each write reaches every agent of the cluster.
func (p *pass) report(ctx context.Context) error {
	names := p.podNames()
	var errs []error
	for _, b := range p.own() {
		status := p.statusOf(b, names)
		if equality.Semantic.DeepEqual(status, b.object.Status) {
			continue
		}
		name := b.object.Name
		settled := p.lasts("status "+name, 10*p.pace.status) // a pod's name is told a moment after its address
		if !settled || !p.passed(p.done[name], p.pauseAfter(b)) {
			continue
		}
		errs = append(errs, p.writeStatus(ctx, b, status))
	}
	return errors.Join(errs...)
}

// pauseAfter is how long a block's status is left alone after it was written: a second in a
// cluster of two nodes, ten minutes in one of 1,200, so that all agents together write two a
// second, however many they are. A block that may be taken over soon is written sooner, since
// the next node reads who has its addresses.
func (p *pass) pauseAfter(b block) time.Duration {
	times := min(max(5*len(p.nodes), 10), 6000)
	if !p.active[b.prefix] {
		times = 10
	}
	return time.Duration(times) * p.pace.status
}

func (p *pass) writeStatus(ctx context.Context, b block, status v1alpha1.IPBlockStatus) error {
	ctx, cancel := context.WithTimeout(ctx, p.pace.request)
	defer cancel()
	wanted := b.object.DeepCopy()
	wanted.Status = status
	got, err := p.Blocks.UpdateStatus(ctx, wanted)
	if err != nil {
		return fmt.Errorf("write status of block %s: %w", wanted.Name, err)
	}
	p.done[wanted.Name] = p.now
	_, err = p.took(got)
	return err
}

// podNames tells who has an address. One that a pod at its end had may be another pod's by now.
func (p *pass) podNames() map[netip.Addr]pod {
	names := map[netip.Addr]pod{}
	for _, pod := range p.pods {
		for _, a := range pod.addrs {
			was, ok := names[a]
			if !ok || was.done && !pod.done || was.done == pod.done && was.created.Before(pod.created) {
				names[a] = pod
			}
		}
	}
	return names
}

func (p *pass) statusOf(b block, names map[netip.Addr]pod) v1alpha1.IPBlockStatus {
	s := v1alpha1.IPBlockStatus{Capacity: int32(p.capacityOf(b)), Next: min(2, capacity(b.prefix)-1)}
	s.Size = sizeOf(b.prefix, int64(s.Capacity))
	since := map[string]metav1.Time{}
	for _, a := range b.object.Status.Allocations {
		since[a.Address+a.Container] = a.Since
	}
	var released []Lease
	for _, l := range p.Cluster.leases { // sorted by address
		if !b.prefix.Contains(l.Addr) {
			continue
		}
		n := ordinal(b.prefix, l.Addr)
		s.Next = max(s.Next, n+1)
		if l.Released {
			released = append(released, l)
			continue
		}
		if s.Used++; len(s.Allocations) == mostAllocations || n < 0 {
			continue
		}
		a := v1alpha1.Allocation{Ordinal: n, Address: l.Addr.String(), Container: l.Container,
			Namespace: names[l.Addr].namespace, Pod: names[l.Addr].name, Since: metav1.NewTime(l.Since.Truncate(time.Second))}
		if was, ok := since[a.Address+a.Container]; ok {
			a.Since = was // reckoned anew each time, it may be a second off
		}
		s.Allocations = append(s.Allocations, a)
	}
	slices.SortStableFunc(released, func(a, b Lease) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	for _, l := range released[:min(len(released), mostReleased)] {
		s.Released = append(s.Released, ordinal(b.prefix, l.Addr))
	}
	return s
}
