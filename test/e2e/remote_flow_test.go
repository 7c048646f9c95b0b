// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// farCases are those of F5 about another node's pod, which the fast path carries what the pod calls
// itself to, and the stack what a service leads to it: flow_test.go has the words. As on the node, a
// flow that was given another port and lost its row is reset.
var farCases = []flowCase{
	{"Direct", "pod", "a=pod-remote a a -a", small},
	{"Service", "pod", "a=svc-remote a a -a", small},
	{"DirectThenService", "pod", "a=pod-remote b=svc-remote a b a b -b a", small},
	{"ServiceThenDirect", "pod", "a=svc-remote b=pod-remote a b a b -b a", small},
	{"DirectFirstToGo", "pod", "a=pod-remote b=svc-remote a b -a b b", small},
	{"ServiceFirstToGo", "pod", "a=svc-remote b=pod-remote a b -a b b", small},
	{"ServiceClosedThenDirect", "pod", "a=svc-remote -a b=pod-remote b", small},
	{"DirectClosedThenService", "pod", "a=pod-remote -a b=svc-remote b", small},
	{"DirectAndNodePort", "pod", "a=pod-remote b=np-remote c=svc-remote a b c a b c", small},
	{"All", "pod", "a=pod-remote b=svc-remote c=pod-local d=svc-local e=hostport a b c d e a b c d e", small},
	{"ServiceFromTakenPort", "pod", "a=pod-remote b=svc-remote c=svc-remote@b a b c -b c", tcp},
	{"DirectFromTakenPort", "pod", "a=pod-remote b=svc-remote c=pod-remote@b a b c -b c", tcp},
	{"DirectAgain", "pod", "a=pod-remote *a a=pod-remote a", tcp},
	{"ServiceAgain", "pod", "a=pod-remote b=svc-remote *b b=svc-remote a b", tcp},
	{"BothAgain", "pod", "a=pod-remote b=svc-remote *b *a b=svc-remote a=pod-remote a b", tcp},
	{"IdleEvicted", "pod", "a=pod-remote evict a a", small},
	{"ServiceIdleEvicted", "pod", "a=svc-remote evict a a", small},
	{"LateAnswer", "pod", "a=pod-remote a? evict a! a", small},
	{"ServiceLateAnswer", "pod", "a=svc-remote a? evict a! a", small},
	{"ServiceLateAnswerBesideDirect", "pod", "a=pod-remote b=svc-remote b? a b! a b", small},
	{"LateAnswerBesideService", "pod", "a=pod-remote b=svc-remote a? b a! a b", small},
	{"EvictedServerFirst", "pod", "a=pod-remote b=svc-remote b? evict b~ a~", tcp},
	{"ServiceOrphan", "pod", "a=pod-remote b=svc-remote ^b b~ a", tcp},
	{"DirectOrphan", "pod", "a=svc-remote b=pod-remote ^b b~ a", tcp},
}

// F5: the fast path to other nodes' pods, directly and by the tunnel, beside kube-proxy's
// services that lead to the same pods.
func TestPrivilegedF5Remote(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]linkage{"Direct": direct, "Tunnel": overV4} {
		for _, nf := range netfilters {
			t.Run(name+"/"+nf.name, func(t *testing.T) {
				m := newMesh(t, 2, func(int, int) linkage { return how })
				newFlowNetOf(t, nf, m.cluster).cases(t, farCases)
			})
		}
	}
}

// What a pod calls itself on another node passes the stack by: FORWARD may drop all, and conntrack
// does not know it. What netfilter translates goes on by its rules.
func TestPrivilegedF5RemoteForwardDrop(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]linkage{"Direct": direct, "Tunnel": overV6} {
		for _, nf := range netfilters {
			t.Run(name+"/"+nf.name, func(t *testing.T) {
				m := newMesh(t, 2, func(int, int) linkage { return how })
				f := newFlowNetOf(t, nf, m.cluster)
				nf.strict(t, m.Nodes[0])
				f.cases(t, []flowCase{
					{"Direct", "pod", "a=pod-remote a a *a a=pod-remote a -a", tcp},
					{"Both", "pod", "a=pod-remote b=svc-remote a b a b", tcp},
				})
			})
		}
	}
}

// farRows counts the rows of requests that lead from a node's pods to others' by the fast path.
func farRows(t *testing.T, n *netns.Node) (count int) {
	t.Helper()
	set := tables(t, n)
	for _, f := range append(rows(t, set.Flows.All()), rows(t, set.Halfopen.All())...) {
		if f.Action == maps.FlowToWire && !slices.Contains(f.Flags.Names(), "reply") {
			count++
		}
	}
	return count
}

// A connection takes the fast path only where the row names the device that the FIB leads to, and
// a chained pod's never.
func TestPrivilegedRemoteFast(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, mixed)
	a := m.Nodes[0].Add(t, netns.PodSpec{Name: "a"})
	b, _ := serve(t, m.Nodes[1], netns.PodSpec{Name: "b"})
	c, _ := serve(t, m.Nodes[2], netns.PodSpec{Name: "c"})
	try := func(what string, fast int) {
		t.Helper()
		for _, v := range families {
			for _, to := range []*netns.Pod{b, c} {
				before := farRows(t, m.Nodes[0])
				ask(t, a.NS, call("tcp", to.Addr(v), 80), want{server: to.Name, remote: only(a.Addr(v))})
				ask(t, a.NS, call("udp", to.Addr(v), 80), want{server: to.Name, remote: only(a.Addr(v))})
				if got := farRows(t, m.Nodes[0]) - before; got != fast {
					t.Errorf("%s, to %s, IPv%d: %d connections are fast, want %d", what, to.Name, v, got, fast)
				}
			}
		}
	}
	try("as linked", 1)
	table := tables(t, m.Nodes[0]).Remotes
	for _, r := range rows(t, table.All()) {
		r.Ifindex = 1
		if err := table.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	try("with another device", 0)
}
