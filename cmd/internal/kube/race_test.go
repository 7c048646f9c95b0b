// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
	"github.com/culvert-cni/culvert/test/apitest"
)

// slow is pace for many agents in one process.
func slow(o *Options) {
	o.pace.poll, o.pace.gather, o.pace.status = 100*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
}

const manyNodes, blocksInPool = 50, 64

func TestFiftyNodesClaimFromOnePool(t *testing.T) {
	s := apitest.New(t)
	agents := fiftyNodes(t, s)
	t.Logf("%d creates for %d blocks", s.Asked()["create ipblocks"], blocksInPool)
	letGo(t, s, agents)
	neverChangedHands(t, s)
}

// Fifty nodes are told at once of a pool of 64 blocks with one address each: every node gets one,
// and when each has a pod, fourteen get a second one to have one free.
func fiftyNodes(t *testing.T, s server) (agents []*agent) {
	for i := range manyNodes {
		name := fmt.Sprint("n", i)
		s.Apply(t, "nodes", aNode(name, fmt.Sprintf("192.0.2.%d", i+1)))
	}
	for i := range manyNodes {
		agents = append(agents, start(t, s, fmt.Sprint("n", i), RangesPools, slow))
	}
	for _, a := range agents {
		a.eventually(t, "faults", "NoPool", faults)
	}
	s.Apply(t, "ippools", aPool("small", "10.60.0.0/24", 30))
	for _, a := range agents {
		until(t, func() bool { s, _ := a.State(); return len(s.Ranges) > 0 }, func() string { return a.NodeName + " has no range" })
	}
	taken := map[netip.Addr]string{}
	for _, a := range agents {
		state, _ := a.State()
		addr := state.Ranges[0].Addr().Next().Next()
		if other, is := taken[addr]; is {
			t.Errorf("%s is given by %s and by %s", addr, other, a.NodeName)
		}
		taken[addr] = a.NodeName
		a.hold(addr.String())
	}
	until(t, func() bool { return len(blocks(t, agents[0])) == blocksInPool }, func() string { return "blocks are left: " + owners(t, agents[0]) })
	exhausted := func() (n int) {
		for _, a := range agents {
			if s, _ := a.State(); strings.Contains(faults(s), "PoolExhausted") {
				n++
			}
		}
		return n
	}
	until(t, func() bool { return exhausted() == 2*manyNodes-blocksInPool }, func() string { return fmt.Sprint("told that the pool is exhausted: ", exhausted()) })
	return agents
}

// letGo ends all pods and the pool, and wants no block to be left.
func letGo(t *testing.T, s server, agents []*agent) {
	for _, a := range agents {
		state, _ := a.State()
		for _, r := range state.Ranges {
			a.drop(r.Addr().Next().Next().String())
		}
	}
	s.Apply(t, "ippools", aPool("small", "10.60.0.0/24", 30, func(p *v1alpha1.IPPoolSpec) { p.Disabled = true }))
	until(t, func() bool { return len(blocks(t, agents[0])) == 0 }, func() string { return "not released: " + owners(t, agents[0]) })
}

// neverChangedHands goes through all that ever happened to blocks.
func neverChangedHands(t *testing.T, s *apitest.Server) {
	t.Helper()
	s.Each("ipblocks", func(was, is []byte) {
		var before, after v1alpha1.IPBlock
		if was == nil || is == nil {
			return
		}
		if json.Unmarshal(was, &before) != nil || json.Unmarshal(is, &after) != nil {
			t.Fatal("history cannot be read")
		}
		if before.Spec.Node != after.Spec.Node {
			t.Errorf("block %s went from %s to %s", before.Name, before.Spec.Node, after.Spec.Node)
		}
	})
}

// Blocks of pools that overlap have other names: that create fails does not keep nodes apart.
func TestPoolsThatOverlap(t *testing.T) {
	s := apitest.New(t)
	var agents []*agent
	for i, size := range []int32{28, 27} {
		s.Apply(t, "ippools", aPool(fmt.Sprint("of-", size), "10.60.0.0/25", size, func(p *v1alpha1.IPPoolSpec) { p.NodeSelector = fmt.Sprint("size=", size) }))
		for j := range 6 {
			n := aNode(fmt.Sprintf("n%d-%d", size, j), fmt.Sprintf("192.0.2.%d", 1+i*6+j))
			n.Labels = map[string]string{"size": fmt.Sprint(size)}
			s.Apply(t, "nodes", n)
		}
	}
	for _, size := range []int32{28, 27} {
		for j := range 6 {
			agents = append(agents, start(t, s, fmt.Sprintf("n%d-%d", size, j), RangesPools, slow))
		}
	}
	settled := func() bool {
		for _, a := range agents {
			if s, ok := a.State(); !ok || len(s.Ranges) == 0 && !strings.Contains(faults(s), "PoolExhausted") {
				return false
			}
		}
		return true
	}
	until(t, settled, func() string { return "not all have a range, or know that there is none: " + owners(t, agents[0]) })
	var all []netip.Prefix
	for _, a := range agents {
		state, _ := a.State()
		for _, r := range state.Ranges {
			if slices.ContainsFunc(all, r.Overlaps) {
				t.Errorf("%s of %s overlaps what others have: %s", r, a.NodeName, owners(t, a))
			}
			all = append(all, r)
		}
	}
	if len(all) < 4 {
		t.Errorf("only %d of 4 to 8 blocks were taken: %s", len(all), owners(t, agents[0]))
	}
}
