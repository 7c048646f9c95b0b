// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// flowCases are the cases of F5. A script is words, in order; every flow of a
// case has the same client source port:
//
//	a=TARGET  opens flow a to the target and asks once
//	a=TARGET@b  the same, from the client port that the server sees flow b by: not its own
//	a         asks again on flow a
//	a?        asks, the server holds the answer back
//	a!        the server answers what it held, the client must get it
//	a~        asks, or has the server answer what it held; the client gets its
//	          answer, or one end is reset: no hang
//	-a        closes flow a
//	*a        resets flow a, whose tuple the client may use again
//	evict     deletes every row of this client port from flows and halfopen
//	^a        deletes those of flow a alone, which the server sees with another port
//
// Every answer must come from the address that was called, by the right server,
// which saw the client's address, or the node's where the rules masquerade.
var flowCases = []flowCase{
	// What netfilter translates, alone.
	{"ServiceLocal", "pod", "a=svc-local a -a", nil},
	{"ServiceRemote", "pod", "a=svc-remote a -a", nil},
	{"ServiceSelf", "pod", "a=svc-self a -a", nil},
	{"ServiceOutside", "pod", "a=svc-outside a -a", nil},
	{"ServiceFromHost", "host", "a=svc-local a b=svc-remote b a", nil},
	{"NodePortLocal", "outside", "a=np-local a -a", nil},
	{"NodePortPolicyLocal", "outside", "a=np-policy a -a", nil},
	{"NodePortRemote", "outside", "a=np-remote a -a", nil},
	{"NodePortFromPod", "pod", "a=np-local a b=np-remote b a", nil},
	{"NodePortFromRemotePod", "remote", "a=np-local a b=np-policy b a", nil},
	{"ServiceFromRemotePod", "remote", "a=svc-local a b=svc-outside b a", nil},

	// Direct and hostPort flows, alone and side by side.
	{"Direct", "pod", "a=pod-local b=pod-remote c=outside a b c", nil},
	{"DirectFromOutside", "outside", "a=pod-local b=pod-remote a b", nil},
	{"HostPortFromOutside", "outside", "a=hostport b=hostport2 c=pod-local a b c a", nil},
	{"HostPortFromPod", "pod", "a=hostport b=hostport2 c=pod-local a b c a", nil},
	{"HostPortFromRemotePod", "remote", "a=hostport b=hostport2 c=pod-local a b c a", nil},
	{"HostPortFromHost", "host", "a=hostport b=hostport2 c=pod-local a b c a", small},

	// The same tuples at the server's end by the stack and by the fast path.
	{"DirectThenService", "pod", "a=pod-local b=svc-local a b a -b a", nil},
	{"ServiceThenDirect", "pod", "a=svc-local b=pod-local a b a -b a", nil},
	{"ServiceClosedThenDirect", "pod", "a=svc-local -a b=pod-local b", nil},
	{"DirectClosedThenService", "pod", "a=pod-local -a b=svc-local b", nil},
	{"DirectAndServiceRemote", "pod", "a=pod-remote b=svc-remote a b a b", nil},
	{"ServiceRemoteAndDirect", "pod", "a=svc-remote b=pod-remote a b a b", nil},
	{"ServiceOutsideAndDirect", "pod", "a=svc-outside b=outside a b a b", nil},
	{"HostPortThenService", "pod", "a=hostport b=svc-local a b a -b a", nil},
	{"ServiceThenHostPort", "pod", "a=svc-local b=hostport a b a -b a", nil},
	{"AllFromPod", "pod", "a=svc-local b=hostport c=pod-local d=hostport2 a b c d a b c d", nil},
	{"DirectThenNodePort", "outside", "a=pod-local b=np-policy a b a -b a", nil},
	{"NodePortThenDirect", "outside", "a=np-policy b=pod-local a b a -b a", nil},
	{"HostPortThenNodePort", "outside", "a=hostport b=np-policy a b a -b a", nil},
	{"NodePortThenHostPort", "outside", "a=np-policy b=hostport a b a -b a", nil},
	{"NodePortClosedThenHostPort", "outside", "a=np-policy -a b=hostport -b c=pod-local -c d=hostport2 d", nil},
	{"AllFromOutside", "outside", "a=np-policy b=hostport c=pod-local d=hostport2 e=np-local a b c d e a b c d e", nil},
	{"DirectAndNodePortRemote", "outside", "a=pod-remote b=np-remote a b a b", nil},

	// From the port that another flow was given.
	{"ServiceFromTakenPort", "pod", "a=pod-local b=svc-local c=svc-local@b a b c -b c", tcp},
	{"DirectFromTakenPort", "pod", "a=pod-local b=svc-local c=pod-local@b a b c -b c", tcp},
	{"HostPortFromTakenPort", "outside", "a=pod-local b=hostport c=np-policy@b d=pod-local@b a b c d", tcp},

	// One tuple again.
	{"ServiceAgain", "pod", "a=svc-local *a a=svc-local a", tcp},
	{"DirectAgain", "pod", "a=pod-local *a a=pod-local a", tcp},
	{"HostPortAgain", "outside", "a=hostport *a a=hostport a", tcp},
	{"NodePortAgain", "outside", "a=np-policy *a a=np-policy a", tcp},
	{"AllAgain", "outside", "a=hostport b=np-policy c=pod-local *a *b *c a=hostport b=np-policy c=pod-local a b c", tcp},
	{"AllAgainFromPod", "pod", "a=hostport b=svc-local c=pod-local *c *a *b b=svc-local a=hostport c=pod-local a b c", tcp},

	// After an eviction.
	{"ServiceIdleEvicted", "pod", "a=svc-local evict a a", nil},
	{"ServiceRemoteIdleEvicted", "pod", "a=svc-remote evict a a", nil},
	{"ServiceSelfIdleEvicted", "pod", "a=svc-self evict a a", nil},
	{"NodePortIdleEvicted", "outside", "a=np-policy evict a a", nil},
	{"DirectIdleEvicted", "pod", "a=pod-local evict a a", nil},
	{"DirectFromOutsideIdleEvicted", "outside", "a=pod-local evict a a", nil},
	{"HostPortIdleEvicted", "outside", "a=hostport evict a a", nil},
	{"HostPortFromPodIdleEvicted", "pod", "a=hostport evict a a", nil},
	{"ServiceLateAnswer", "pod", "a=svc-local a? evict a! a", nil},
	{"ServiceRemoteLateAnswer", "pod", "a=svc-remote a? evict a! a", nil},
	{"NodePortLateAnswer", "outside", "a=np-policy a? evict a! a", nil},
	{"ServiceLateAnswerBesideDirect", "pod", "a=svc-local b=pod-local -b a? evict a! a", nil},
	{"DirectLateAnswer", "pod", "a=pod-local a? evict a! a", nil},
	{"DirectFromOutsideLateAnswer", "outside", "a=pod-local a? evict a! a", nil},
	{"HostPortServerFirst", "outside", "a=hostport a? evict a~", tcp},
	{"HostPortFromPodServerFirst", "pod", "a=hostport a? evict a~", tcp},
	{"EvictedBesideDirect", "pod", "a=svc-local b=pod-local evict a b~ a", nil},
	{"EvictedBesideNodePort", "outside", "a=np-policy b=hostport evict a b~ a", nil},
}

var (
	tcp   = []string{"tcp"}
	small = []string{"tcp", "udp"}
)

// F5: replies of flows that netfilter translated still pass netfilter, whatever
// else is open, and nobody else's reply does.
func TestPrivilegedF5Flows(t *testing.T) {
	t.Parallel()
	newFlowNet(t).cases(t, flowCases)
}

// H12, in part: two hostPorts onto one container port and the pod itself, called
// back to back from one source port: no stall, every answer from its address.
func TestPrivilegedH12BackToBack(t *testing.T) {
	t.Parallel()
	f := newFlowNet(t)
	limit := 200 * time.Millisecond
	rounds := 30
	if netns.Emulated() {
		limit, rounds = stall, 10
	}
	for _, from := range []string{"outside", "pod", "remote"} {
		t.Run(from, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, family int) {
				for range rounds {
					r := f.runner(t, from, proto, family)
					for _, target := range []string{"hostport", "hostport2", "pod-local"} {
						start := time.Now()
						r.step("a=" + target)
						r.step("-a")
						if took := time.Since(start); took > limit {
							t.Errorf("%s: want an answer within %v, it took %v", target, limit, took)
						}
					}
					r.close()
				}
			})
		})
	}
}

// flowCase is a script that one client runs.
type flowCase struct {
	name, from, script string
	protos             []string // default all
}

// cases runs them side by side.
func (f *flowNet) cases(t *testing.T, cases []flowCase) {
	for _, tc := range cases {
		if tc.protos == nil {
			tc.protos = protos
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			each(t, tc.protos, func(t *testing.T, proto string, family int) {
				f.run(t, tc.from, tc.script, proto, family)
			})
		})
	}
}

func (f *flowNet) run(t *testing.T, from, script, proto string, family int) {
	r := f.runner(t, from, proto, family)
	defer r.close()
	r.script = script
	for word := range words(script) {
		if !r.step(word) {
			return
		}
	}
}
