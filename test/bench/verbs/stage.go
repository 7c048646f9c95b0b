// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/netns"
)

var (
	// Pods are the numbers that a full run has on its nodes before.
	Pods = []int{0, 100, 500}

	hostPorts = 5000 // the same, on another node without pods
)

// chains are culvert's first: the others are compared with it. Each gets addresses as it does
// best: culvert by culvert-ipam, which it calls in its own process.
func chains() []node.Chain {
	return []node.Chain{
		{Name: "culvert", Masq: true, OwnIPAM: true},
		{Name: "nft", Backend: "nft", Masq: true},
		{Name: "iptables", Backend: "iptables", Masq: true},
	}
}

// bed is a node of one chain on which as many pods or hostPorts stay, and its neighbour.
type bed struct {
	*node.Node
	outside         *netns.NS
	pods, hostPorts int

	spaces  []*netns.NS // for pods that are measured
	closers []func()    // of what serves there
}

type stage struct {
	Options
	part *report.Part
	beds []*bed
}

// close lets the nodes go, side by side: a pod's namespace takes the kernel a while.
func (s *stage) close() {
	s.Progress.Step(Name, 0, 0, "clean up")
	var all sync.WaitGroup
	for _, b := range s.beds {
		all.Go(func() {
			if err := b.close(); err != nil {
				fmt.Fprintln(os.Stderr, "verbs: clean up:", err)
			}
		})
	}
	all.Wait()
}

func (b *bed) close() error {
	for _, c := range b.closers {
		c()
	}
	for _, ns := range b.spaces {
		ns.Close()
	}
	b.outside.Close()
	return b.Close()
}

// build makes the nodes. One that cannot be made is noted and left out.
func (s *stage) build(ctx context.Context) error {
	for _, n := range s.Pods {
		for _, c := range chains() {
			if err := s.bed(ctx, c, n, 0); err != nil && ctx.Err() == nil {
				s.part.Fail("%s, %d pods: %v", c.Name, n, err)
			}
		}
	}
	for _, c := range chains() {
		if s.Short {
			break
		}
		if err := s.bed(ctx, c, 0, hostPorts); err != nil && ctx.Err() == nil {
			s.part.Fail("%s, %d hostPorts: %v", c.Name, hostPorts, err)
		}
	}
	return ctx.Err()
}

func (s *stage) bed(ctx context.Context, c node.Chain, pods, hostPorts int) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if missing := c.Missing(); missing != "" {
		return fmt.Errorf("no %s", missing)
	}
	b := &bed{pods: pods, hostPorts: hostPorts}
	if b.outside, err = netns.TryNew("outside of " + c.Name); err != nil {
		return err
	}
	if b.Node, err = node.New(c, s.Bin, b.outside); err != nil {
		b.outside.Close()
		return err
	}
	s.Progress.Step(Name, 0, 0, "set up "+pathName(c.Name, pods, hostPorts, 1))
	if err = b.warmUp(ctx); err == nil {
		err = b.Fill(ctx, hostPorts)
	}
	if err == nil {
		err = s.fill(ctx, b)
	}
	if err != nil {
		return errors.Join(err, b.close())
	}
	s.beds = append(s.beds, b)
	return nil
}

// warmUp has the first pod's ADD do what is done once a node: load programs, make chains.
func (b *bed) warmUp(ctx context.Context) error {
	if err := b.space(); err != nil {
		return err
	}
	p := b.PodIn(b.spaces[0], capabilities(first))
	if err := p.Add(ctx); err != nil {
		return err
	}
	return p.Del(ctx)
}

// atOnce: pods that stay are made side by side.
const atOnce = 4

func (s *stage) fill(ctx context.Context, b *bed) error {
	for i := 0; i < b.pods; i += atOnce {
		s.Progress.Step(Name, 0, 0, fmt.Sprintf("set up %s: pod %d", pathName(b.Chain.Name, b.pods, 0, 1), i))
		var some []*node.Pod
		for j := i; j < min(i+atOnce, b.pods); j++ {
			pod, err := b.NewPod(capabilities(firstFill + 2*j))
			if err != nil {
				return err
			}
			some = append(some, pod)
		}
		if err := errors.Join(parallel(some, func(_ int, p *node.Pod) error { return stays(ctx, p) })...); err != nil {
			return err
		}
	}
	return nil
}

// stays makes a pod. Plugins that get into each other's way are given a second try: a node
// is not lost for one pod.
func stays(ctx context.Context, p *node.Pod) error {
	err := p.Add(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err2 := errors.Join(p.Del(ctx), p.Add(ctx)); err2 != nil {
		return errors.Join(err, err2)
	}
	return nil
}

// parallel does f to all at once.
func parallel[T any](all []T, f func(int, T) error) []error {
	errs := make([]error, len(all))
	var busy sync.WaitGroup
	for i, v := range all {
		busy.Go(func() { errs[i] = f(i, v) })
	}
	busy.Wait()
	return errs
}

// Where hostPorts are counted from: of pods that stay, and of those that are measured.
const (
	firstFill = 10000
	first     = 8000
)

func capabilities(port int) map[string]any {
	return map[string]any{
		"portMappings": slices.Concat(node.Ports(port, 1, "tcp"), []node.PortMapping{{HostPort: port + 1, ContainerPort: 53, Protocol: "udp"}}),
		"bandwidth":    map[string]any{"ingressRate": 100e6, "ingressBurst": 1e6, "egressRate": 100e6, "egressBurst": 1e6},
	}
}
