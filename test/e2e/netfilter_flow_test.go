// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"
)

// hostPortCases are those of F5 with hostPorts that netfilter translates, as CRI-O
// without culvert's mappings would: flow_test.go has the words.
var hostPortCases = []flowCase{
	{"FromOutside", "outside", "a=crio b=crio-pod a b a -a b", nil},
	{"FromPod", "pod", "a=crio a -a", nil},
	{"FromItself", "pod", "a=crio-self a -a", nil},
	{"FromHost", "host", "a=crio b=crio-pod a b a", small},
	{"FromRemotePod", "remote", "a=crio b=crio-pod a b a", nil},
	{"IdleEvicted", "outside", "a=crio evict a a", nil},
	{"FromPodIdleEvicted", "pod", "a=crio evict a a", nil},
	{"FromItselfIdleEvicted", "pod", "a=crio-self evict a a", nil},
	{"LateAnswer", "outside", "a=crio a? evict a! a", nil},
	{"FromPodLateAnswer", "pod", "a=crio a? evict a! a", nil},
	{"ThenDirect", "outside", "a=crio b=pod-local a b a -b a", nil},
	{"DirectThen", "outside", "a=pod-local b=crio a b a -b a", nil},
	{"FromPodThenDirect", "pod", "a=crio b=pod-local a b a -b a", nil},
	{"DirectThenFromPod", "pod", "a=pod-local b=crio a b a -b a", nil},
	{"BesideOurs", "outside", "a=hostport b=crio c=hostport2 d=np-policy e=pod-local a b c d e a b c d e", nil},
	{"BesideOursFromPod", "pod", "a=hostport b=crio c=svc-local d=pod-local a b c d a b c d", nil},
	{"LateAnswerBesideDirect", "outside", "a=pod-local b=crio b? a evict b~ a~", tcp},
	{"Again", "outside", "a=crio *a a=hostport *a a=crio a", tcp},
}

// lateCases are answers that come late while a direct flow has the same two ports. The
// flow that came second has another port at the pod; when its row is evicted too, nobody
// knows that port any more: the answer is lost, and the client asks again.
var lateCases = []flowCase{
	{"BesideDirect", "pod", "a=pod-local b=svc-local b? b! a b", nil},
	{"DirectSpeaks", "pod", "a=pod-local b=svc-local b? a b! a b", nil},
	{"ServiceSpeaks", "pod", "a=pod-local b=svc-local a? b a! a b", nil},
	{"Evicted", "pod", "a=pod-local b=svc-local b? evict b a b", udps},
	{"EvictedDirectSpeaks", "pod", "a=pod-local b=svc-local b? evict a b a b", udps},
	{"ServerFirst", "pod", "a=pod-local b=svc-local b? evict b~ a~", tcp},
	{"DirectEvicted", "pod", "a=svc-local b=pod-local ^b b~ a", tcp},
	{"NodePort", "outside", "a=pod-local b=np-policy b? a b! a b", nil},
	{"NodePortEvicted", "outside", "a=pod-local b=np-policy b? evict b a b", udps},
	{"HostPort", "outside", "a=hostport b=np-policy b? a b! a b", nil},
	{"HostPortEvicted", "outside", "a=hostport b=np-policy b? evict b a b", udps},
	{"Remote", "pod", "a=pod-remote b=svc-remote b? a evict b! a b", nil},
}

// orphanCases: the stack's flow has the changed port, and lost its row alone. Its next
// segment must not reach the other flow's socket: one end is reset, the other flow stays.
var orphanCases = []flowCase{
	{"Service", "pod", "a=pod-local b=svc-local ^b b~ a", tcp},
	{"NodePort", "outside", "a=pod-local b=np-policy ^b b~ a", tcp},
	{"BesideHostPort", "outside", "a=hostport b=np-policy ^b b~ a", tcp},
	{"HostPortByNetfilter", "outside", "a=pod-local b=crio ^b b~ a", tcp},
}

var udps = []string{"udp", "udp4000"}

// F5: the cases of flow_test.go with kube-proxy's rules by iptables.
func TestPrivilegedF5Iptables(t *testing.T) {
	t.Parallel()
	for _, nf := range netfilters[1:] {
		t.Run(nf.name, func(t *testing.T) { newFlowNetBy(t, nf).cases(t, flowCases) })
	}
}

// F5: hostPorts that netfilter translates, beside ours.
func TestPrivilegedF5HostPortByNetfilter(t *testing.T) {
	t.Parallel()
	for _, nf := range netfilters {
		t.Run(nf.name, func(t *testing.T) { newFlowNetBy(t, nf).cases(t, hostPortCases) })
	}
}

// F5: a late answer of a flow that netfilter translated passes netfilter, also when the
// row was evicted and while a direct flow has the client's port.
func TestPrivilegedF5LateAnswer(t *testing.T) {
	t.Parallel()
	for _, nf := range netfilters {
		t.Run(nf.name, func(t *testing.T) { newFlowNetBy(t, nf).cases(t, lateCases) })
	}
}

// F5, F3: a translated connection that lost its row beside a direct one is reset.
func TestPrivilegedF5Orphan(t *testing.T) {
	t.Parallel()
	for _, nf := range netfilters {
		t.Run(nf.name, func(t *testing.T) { newFlowNetBy(t, nf).cases(t, orphanCases) })
	}
}

// F5, N5: the same where the FORWARD chain lets nothing pass but what netfilter
// translated: what culvert carries does not ask it.
func TestPrivilegedF5ForwardDrop(t *testing.T) {
	t.Parallel()
	for _, nf := range netfilters {
		t.Run(nf.name, func(t *testing.T) {
			f := newFlowNetBy(t, nf)
			nf.strict(t, f.Nodes[0])
			f.cases(t, underForwardDrop(slices.Concat(flowCases, hostPortCases, lateCases)))
		})
	}
}

// underForwardDrop leaves out what obeys the chain (N5): what a pod sends outside
// untranslated, fragments, and (F3) the answer to a client outside whose row was evicted.
func underForwardDrop(cases []flowCase) (pass []flowCase) {
	for _, tc := range cases {
		outbound := tc.from == "pod" && (strings.Contains(tc.script, "=outside") || strings.Contains(tc.script, "=pod-remote"))
		late := tc.from == "outside" && slices.ContainsFunc([]string{"a? evict a", "b? evict b~", "b? a evict b~"}, func(s string) bool {
			return strings.Contains(tc.script, s)
		}) && !strings.HasPrefix(tc.script, "a=np") && !strings.HasPrefix(tc.script, "a=crio")
		if outbound || late {
			continue
		}
		if tc.protos == nil {
			tc.protos = small
		}
		tc.protos = slices.DeleteFunc(slices.Clone(tc.protos), func(p string) bool { return p == "udp4000" })
		pass = append(pass, tc)
	}
	return pass
}
