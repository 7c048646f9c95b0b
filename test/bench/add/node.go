// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/node"
)

// bench is a node and what the verbs cost there, round by round.
type bench struct {
	*node.Node
	costs map[string][]cost
}

// chains are culvert's first: the others are compared with it.
func chains() []node.Chain {
	return []node.Chain{
		{Name: "culvert"},
		{Name: "bridge, portmap (nft), bandwidth", Backend: "nft"},
		{Name: "bridge, portmap (iptables), bandwidth", Backend: "iptables"},
	}
}

func capabilities(port int) map[string]any {
	return map[string]any{
		"portMappings": []node.PortMapping{
			{HostPort: port, ContainerPort: 80, Protocol: "tcp"},
			{HostPort: port + 1, ContainerPort: 53, Protocol: "udp"}},
		"bandwidth": map[string]any{"ingressRate": 100e6, "ingressBurst": 1e6, "egressRate": 100e6, "egressBurst": 1e6},
	}
}

// fill makes a pod that stays.
func (b *bench) fill(ctx context.Context, i int) error {
	pod, err := b.NewPod(capabilities(10000 + 2*i))
	if err != nil {
		return err
	}
	return pod.Add(ctx)
}

// round makes a pod, checks it and takes it away.
func (b *bench) round(ctx context.Context, count bool) error {
	pod, err := b.NewPod(capabilities(8080))
	if err != nil {
		return err
	}
	defer pod.Close()
	for i, verb := range []func(context.Context) error{pod.Add, pod.Check, pod.Del} {
		before, start := cpuOfChildren(), time.Now()
		if err := verb(ctx); err != nil {
			return err
		}
		if count {
			b.costs[verbs[i]] = append(b.costs[verbs[i]], cost{time.Since(start), cpuOfChildren() - before})
		}
	}
	return nil
}

func cpuOfChildren() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
