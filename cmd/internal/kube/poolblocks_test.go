// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/test/apitest"
)

func aPool(name, cidr string, blockSize int32, change ...func(*v1alpha1.IPPoolSpec)) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{CIDR: cidr, BlockSize: blockSize}}
	p.Name = name
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

func pools(s State) string {
	var all []string
	for name, prefixes := range s.Pools {
		all = append(all, fmt.Sprintf("%s:%d", name, len(prefixes)))
	}
	return strings.Join(all, " ")
}

func count(s State) string { return fmt.Sprint(len(s.Ranges)) }

// holdIn takes n addresses of a range, from its first usable one, less those taken.
func (a *agent) holdIn(r netip.Prefix, n int) (held []string) {
	addr := r.Addr().Next().Next()
	for ; len(held) < n; addr = addr.Next() {
		a.hold(addr.String())
		held = append(held, addr.String())
	}
	return held
}

func TestBlocksComeAndGoWithPods(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1"))
	s.Apply(t, "ippools", aPool("v4", "10.60.0.0/24", 28)) // blocks of 13
	s.Apply(t, "ippools", aPool("v6", "fd00:60::/64", 0))
	a := start(t, s, "a", RangesPools)
	a.eventually(t, "ranges of both families", "2", count)
	first, _ := a.State()
	held := a.holdIn(first.Ranges[0], 10)
	a.eventually(t, "ranges with 3 addresses free", "2", count)
	a.hold(netip.MustParseAddr(held[9]).Next().String())
	a.eventually(t, "ranges with 2 free", "3", count)
	for _, addr := range held {
		a.drop(addr)
	}
	a.eventually(t, "ranges after most pods are gone", "2", count)
	a.eventually(t, "draining", "[]", draining)

	// Pods that are to come count as well, once: not when they have an address that kubelet has
	// not told yet.
	for i := range 14 {
		s.Apply(t, "pods", aPod("a", fmt.Sprint("p", i)))
	}
	a.eventually(t, "ranges for pods to come", "3", count)
	state, _ := a.State()
	last := state.Ranges[1]
	if last == first.Ranges[0] {
		last = state.Ranges[0]
	}
	a.holdIn(last, 12)
	until(t, func() bool { return blocks(t, a)[BlockName(last)].Status.Used == 12 }, func() string { return "no status" })
	a.eventually(t, "ranges for pods that came", "3", count)
}

func TestNextPoolWhenTheFirstIsUsedUp(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1"))
	for _, p := range []*v1alpha1.IPPool{aPool("first", "10.60.0.0/28", 28), aPool("second", "10.61.0.0/28", 0), aPool("v6", "fd00:60::/64", 0)} {
		s.Apply(t, "ippools", p)
	}
	a := start(t, s, "a", RangesPools)
	a.eventually(t, "ranges, of the first pool by name", "10.60.0.0/28", v4)
	a.holdIn(netip.MustParsePrefix("10.60.0.0/28"), 12)
	a.eventually(t, "ranges, when the first pool is used up", "10.60.0.0/28 10.61.0.0/28", v4)
	a.eventually(t, "faults", "", faults)
}

func v4(s State) string {
	var all []string
	for _, r := range s.Ranges {
		if r.Addr().Is4() {
			all = append(all, r.String())
		}
	}
	return strings.Join(all, " ")
}

func TestPoolsByNodeSelector(t *testing.T) {
	s := apitest.New(t)
	for _, zone := range []string{"east", "west"} {
		n := aNode(zone, "192.0.2.1")
		n.Labels = map[string]string{"zone": zone}
		s.Apply(t, "nodes", n)
		s.Apply(t, "ippools", aPool(zone, map[string]string{"east": "10.60.1.0/26", "west": "10.60.2.0/26"}[zone], 0,
			func(p *v1alpha1.IPPoolSpec) { p.NodeSelector = "zone=" + zone }))
	}
	east, west := start(t, s, "east", RangesPools), start(t, s, "west", RangesPools)
	east.eventually(t, "ranges", "[10.60.1.0/26]", ranges)
	west.eventually(t, "ranges", "[10.60.2.0/26]", ranges)
	west.hold("10.60.2.7")

	s.Apply(t, "ippools", aPool("west", "10.60.2.0/26", 0, func(p *v1alpha1.IPPoolSpec) { p.Disabled = true }))
	west.eventually(t, "ranges of a disabled pool", "[]", ranges)
	west.eventually(t, "draining", "[10.60.2.0/26]", draining)
	west.eventually(t, "faults", "NoPool", faults)
	west.drop("10.60.2.7")
	west.eventually(t, "draining", "[]", draining)
	if got := owners(t, west); got != "10-60-1-0-26=east" {
		t.Errorf("blocks: %s", got)
	}
}

func TestPoolsByAnnotation(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	// The pool overlaps what the nodes have: .0 and .3 are free.
	s.Apply(t, "ippools", aPool("gold", "10.200.0.0/22", 24, func(p *v1alpha1.IPPoolSpec) { p.Reserved = []string{"10.200.0.0/24", "10.200.3.9"} }))
	s.Apply(t, "ippools", aPool("silver", "10.61.0.0/26", 0))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	a.eventually(t, "pools that nobody names", "", pools)

	p := aPod("a", "rich")
	p.Annotations = map[string]string{netconf.PoolsAnnotation: `["gold"]`}
	s.Apply(t, "pods", p)
	ns := &corev1.Namespace{}
	ns.Name, ns.Annotations = "metal", map[string]string{netconf.PoolsAnnotation: "silver, gold"}
	s.Apply(t, "namespaces", ns)
	a.eventually(t, "pools", "gold:1", pools)
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	a.eventually(t, "reserved", "[10.200.3.9/32]", reserved)
	a.eventually(t, "namespaces", "map[metal:[silver gold]]", func(s State) string { return fmt.Sprint(s.Namespaces) })
	if got, want := owners(t, a), "10-200-1-0-24=a 10-200-2-0-24=b 10-200-3-0-24=a"; got != want {
		t.Errorf("blocks: %s, want %s", got, want)
	}
	b.eventually(t, "pools", "", pools)

	q := aPod("b", "poor")
	q.Namespace = "metal"
	s.Apply(t, "pods", q)
	b.eventually(t, "pools", "silver:1", pools)
	b.eventually(t, "faults, all of gold being a's", "PoolExhausted", faults)

	s.Remove("pods", "default", "rich")
	a.eventually(t, "pools", "", pools)
	b.eventually(t, "faults", "", faults)
	s.Remove("pods", "metal", "poor")
	b.eventually(t, "pools", "", pools)
	until(t, func() bool { return owners(t, a) == "10-200-1-0-24=a 10-200-2-0-24=b" }, func() string { return owners(t, a) })
}

func TestStatus(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24", "fd00:200:0:1::/64"))
	s.Apply(t, "pods", aPod("a", "web", "10.200.1.7"))
	a := start(t, s, "a", RangesNode)
	for _, addr := range []string{"10.200.1.4", "10.200.1.3", "10.200.1.7", "10.200.1.9"} {
		a.hold(addr)
	}
	a.drop("10.200.1.4")
	a.drop("10.200.1.3")
	var got, wide v1alpha1.IPBlockStatus
	until(t, func() bool {
		all := blocks(t, a)
		got, wide = all["10-200-1-0-24"].Status, all["fd00-200-0-1---64"].Status
		return len(got.Allocations) == 2 && len(got.Released) == 2 && wide.Capacity > 0
	}, func() string { return fmt.Sprintf("status: %+v", got) })
	web := got.Allocations[0]
	if web.Ordinal != 7 || web.Address != "10.200.1.7" || web.Namespace != "default" || web.Pod != "web" || web.Container != "c-10.200.1.7" || web.Since.IsZero() {
		t.Errorf("allocation: %+v", web)
	}
	if got.Capacity != 253 || got.Size != "253" || got.Used != 2 || got.Next != 10 || fmt.Sprint(got.Released) != "[4 3]" {
		t.Errorf("status: %+v", got)
	}
	if wide.Capacity != math.MaxInt32 || wide.Size != "2^64" {
		t.Errorf("status of a wide range: %+v", wide)
	}
}

// A status is told to every agent: a node that starts a hundred pods writes few.
func TestStatusIsWrittenSeldom(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	a := start(t, s, "a", RangesNode, func(o *Options) { o.pace.status = 50 * quick.poll }) // half a second: at most one in 5 s
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	for i := range 100 {
		a.hold(fmt.Sprintf("10.200.1.%d", i+2))
		s.Apply(t, "pods", aPod("a", fmt.Sprint("p", i), fmt.Sprintf("10.200.1.%d", i+2)))
	}
	until(t, func() bool { return blocks(t, a)["10-200-1-0-24"].Status.Used == 100 }, func() string { return "no status" })
	if n := s.Asked()["update ipblocks status"]; n > 3 {
		t.Errorf("the status was written %d times", n)
	}
}
