// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/apitest"
)

// What a controller does when a Node is deleted and made again: the range goes to whoever asks
// next. The pods live on.
func TestRangeThatIsGivenToAnotherNodeLeavesPodsTheirAddresses(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	a.hold("10.200.1.5")
	until(t, func() bool { return blocks(t, a)["10-200-1-0-24"].Status.Used == 1 }, func() string { return "no status" })
	s.Apply(t, "pods", aPod("a", "late", "10.200.1.6")) // the API server has it, a's status has not

	s.Remove("nodes", "", "a")
	s.Apply(t, "nodes", aNode("c", "192.0.2.3", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.9.0/24"))
	a.hold("10.200.1.6")
	c := start(t, s, "c", RangesNode)
	c.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	c.eventually(t, "reserved", "[10.200.1.5/32 10.200.1.6/32]", reserved)
	a.eventually(t, "ranges", "[10.200.9.0/24]", ranges)
	a.eventually(t, "draining", "[10.200.1.5/32 10.200.1.6/32]", draining)
	b.eventually(t, "remote", "10.200.1.0/24=c[192.0.2.3] 10.200.1.5/32=a[192.0.2.1] 10.200.1.6/32=a[192.0.2.1] 10.200.9.0/24=a[192.0.2.1]", remote)

	s.Each("ipblocks", func(was, is []byte) {
		if is == nil && strings.Contains(string(was), "/32") {
			t.Errorf("for a moment the pod was not to be found: deleted %s", was)
		}
	})

	a.hold("10.200.1.7") // by an ADD that began before
	c.eventually(t, "reserved", "[10.200.1.5/32 10.200.1.6/32 10.200.1.7/32]", reserved)
	for _, addr := range []string{"10.200.1.5", "10.200.1.6", "10.200.1.7"} {
		a.drop(addr)
	}
	c.eventually(t, "reserved", "[]", reserved)
	b.eventually(t, "remote", "10.200.1.0/24=c[192.0.2.3] 10.200.9.0/24=a[192.0.2.1]", remote)
}

// The agent of the node that loses the range may be down: what it told, and what the API server
// has of its pods, is enough.
func TestRangeIsTakenFromANodeWithoutAgent(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24", "fd00:1::/64"))
	a := start(t, s, "a", RangesNode)
	a.hold("10.200.1.5")
	a.hold("fd00:1::5")
	for _, name := range []string{"10-200-1-0-24", "fd00-1---64"} {
		until(t, func() bool { return blocks(t, a)[name].Status.Used == 1 }, func() string { return "no status" })
	}
	a.stop()
	s.Apply(t, "pods", aPod("a", "late", "10.200.1.6"))
	ended := aPod("a", "ended", "10.200.1.7")
	ended.Status.Phase = "Succeeded"
	s.Apply(t, "pods", ended)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.9.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.1.0/24", "fd00:1::/64"))
	b := start(t, s, "b", RangesNode)
	b.eventually(t, "ranges", "[10.200.1.0/24 fd00:1::/64]", ranges)
	b.eventually(t, "reserved", "[10.200.1.5/32 10.200.1.6/32 fd00:1::5/128]", reserved)
	b.eventually(t, "remote", "10.200.1.5/32=a[192.0.2.1] 10.200.1.6/32=a[192.0.2.1] fd00:1::5/128=a[192.0.2.1]", remote)
}

func TestNodesThatSwapRanges(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	b.eventually(t, "ranges", "[10.200.2.0/24]", ranges)
	a.hold("10.200.1.5")
	b.hold("10.200.2.5")

	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.2.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.1.0/24"))
	a.eventually(t, "ranges", "[10.200.2.0/24]", ranges)
	b.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	a.eventually(t, "reserved", "[10.200.2.5/32]", reserved)
	b.eventually(t, "remote", "10.200.1.5/32=a[192.0.2.1] 10.200.2.0/24=a[192.0.2.1]", remote)

	// And back: what a pod has is inside its node's range again, and needs no block of its own.
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1]", remote)
	a.eventually(t, "remote", "10.200.2.0/24=b[192.0.2.2]", remote)
}

// A cluster whose ranges get narrower: the new one lies inside what another node still has.
func TestRangeInsideAnotherNodesOldRange(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.0.0/16"))
	a := start(t, s, "a", RangesNode)
	a.eventually(t, "ranges", "[10.200.0.0/16]", ranges)
	a.hold("10.200.1.5")
	a.hold("10.200.7.5")

	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.1.0/24"))
	b := start(t, s, "b", RangesNode)
	b.eventually(t, "faults", "RangeConflict", faults) // both have it, says the cluster
	b.eventually(t, "ranges", "[]", ranges)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.201.0.0/24"))
	b.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	b.eventually(t, "reserved", "[10.200.1.5/32]", reserved)
	b.eventually(t, "faults", "", faults)
	a.eventually(t, "draining", "[10.200.0.0/16 10.200.1.5/32]", draining)
}

func TestBlocksOfGoneNodesAreReclaimed(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1]", remote)
	a.stop()
	s.Apply(t, "pods", aPod("a", "alive", "10.200.1.5"))
	s.Remove("nodes", "", "a")
	asked := s.Asked()["list pods"]
	until(t, func() bool { return s.Asked()["list pods"] > asked+1 }, func() string { return "nobody asked for the pods" })
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1]", remote)
	s.Remove("pods", "default", "alive")
	b.eventually(t, "remote", "", remote)
	if got := owners(t, b); got != "10-200-2-0-24=b" {
		t.Errorf("blocks: %s", got)
	}
}

func TestOutageLosesNothing(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)
	a.hold("10.200.1.5")
	a.eventually(t, "remote", "10.200.2.0/24=b[192.0.2.2]", remote)
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1]", remote)
	was := owners(t, a)

	s.SetDown(true)
	a.hold("10.200.1.6")
	a.drop("10.200.1.5")
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.3.0/24")) // by a controller on the API server's side
	until(t, func() bool { _, err := a.Blocks.ListBlocks(t.Context()); return err != nil }, func() string { return "it still answers" })
	for range 100 {
		a.eventually(t, "remote", "10.200.2.0/24=b[192.0.2.2]", remote)
		a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	}
	s.SetDown(false)
	if got := owners(t, a); got != was {
		t.Errorf("blocks: %s, before: %s", got, was)
	}
	a.eventually(t, "remote", "10.200.3.0/24=b[192.0.2.2]", remote)
	until(t, func() bool {
		b := blocks(t, a)["10-200-1-0-24"].Status
		return b.Used == 1 && len(b.Released) == 1
	}, func() string { return "no status after the outage" })
}
