// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
	"github.com/culvert-cni/culvert/test/apitest"
)

// server is an API server, true or not.
type server interface {
	Config() *rest.Config
	// Apply stores an object whatever was there, with its status.
	Apply(t testing.TB, resource string, o metav1.Object)
}

// agent is a Cluster at work, on a node whose leases a test makes.
type agent struct {
	*Cluster
	server server
	stop   func()

	mu     sync.Mutex
	leases map[netip.Addr]Lease
	fail   error
}

// quick is pace for tests.
var quick = pace{gather: time.Millisecond, poll: 10 * time.Millisecond, grace: 50 * time.Millisecond, idle: 100 * time.Millisecond,
	status: time.Millisecond, retry: 10 * time.Millisecond, turn: 20 * time.Millisecond}

// start runs an agent until the test ends, or stop is called.
func start(t testing.TB, s server, name string, mode RangesMode, change ...func(*Options)) *agent {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{server: s, leases: map[netip.Addr]Lease{}}
	log := io.Discard
	if testing.Verbose() {
		log = t.Output()
	}
	o := Options{Client: client, Blocks: blocks, NodeName: name, Mode: mode, Leases: a.list,
		Log:          slog.New(slog.NewTextHandler(log, nil)).With("node", name),
		ReclaimAfter: 200 * time.Millisecond, TakeoverDelay: 50 * time.Millisecond, pace: quick}
	for _, f := range change {
		f(&o)
	}
	a.Cluster = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	a.stop = func() { cancel(); <-done }
	t.Cleanup(a.stop)
	return a
}

func (a *agent) list() (leases []Lease, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		leases = append(leases, l)
	}
	return leases, a.fail
}

// hold makes a pod of this node have an address; drop takes it away.
func (a *agent) hold(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ip := netip.MustParseAddr(addr)
	a.leases[ip] = Lease{Addr: ip, Container: "c-" + addr, Since: time.Now()}
}

func (a *agent) drop(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ip := netip.MustParseAddr(addr)
	a.leases[ip] = Lease{Addr: ip, Container: "c-" + addr, Released: true, Since: time.Now()}
}

// eventually waits for what is wanted of an agent's State, which a function gives as text.
func (a *agent) eventually(t testing.TB, what, want string, of func(State) string) {
	t.Helper()
	var got string
	until(t, func() bool {
		s, ok := a.State()
		got = of(s)
		return ok && got == want
	}, func() string { return fmt.Sprintf("%s of %s: %s\nwant: %s", what, a.NodeName, got, want) })
}

// until polls for a condition.
func until(t testing.TB, ok func() bool, why func() string) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(why())
		}
	}
}

// Texts of parts of a State.
func ranges(s State) string   { return fmt.Sprint(s.Ranges) }
func draining(s State) string { return fmt.Sprint(s.Draining) }
func reserved(s State) string { return fmt.Sprint(s.Reserved) }
func remote(s State) string {
	var all []string
	for _, r := range s.Remote {
		all = append(all, fmt.Sprintf("%s=%s%v", r.Prefix, r.Node, r.Via))
	}
	return strings.Join(all, " ")
}

func faults(s State) string {
	var all []string
	for _, f := range s.Faults {
		all = append(all, f.Reason)
	}
	return strings.Join(all, " ")
}

// aNode is a Node whose address inside the cluster is addr.
func aNode(name, addr string, ranges ...string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Spec.PodCIDRs = name, ranges
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: addr}}
	return n
}

func aPod(node, name string, addrs ...string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase = "default", name, node, corev1.PodRunning
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

// blocks gives all blocks as the server has them, by name.
func blocks(t testing.TB, a *agent) map[string]v1alpha1.IPBlock {
	t.Helper()
	client, err := NewClient(a.server.Config()) // the agent's own has a limit
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ListBlocks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1alpha1.IPBlock{}
	for _, b := range list {
		all[b.Name] = b
	}
	return all
}

// owners is all blocks in a line, sorted: name=node.
func owners(t testing.TB, a *agent) string {
	var all []string
	for name, b := range blocks(t, a) {
		all = append(all, name+"="+b.Spec.Node)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestNodesFindEachOther(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24", "fd00:200:1::/64"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)

	a.eventually(t, "ranges", "[10.200.1.0/24 fd00:200:1::/64]", ranges)
	a.eventually(t, "remote", "10.200.2.0/24=b[192.0.2.2]", remote)
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1] fd00:200:1::/64=a[192.0.2.1]", remote)
	s.Apply(t, "nodes", aNode("c", "192.0.2.3", "10.200.3.0/24"))
	a.eventually(t, "remote, with a node that has no agent", "10.200.2.0/24=b[192.0.2.2] 10.200.3.0/24=c[192.0.2.3]", remote)
	if got, want := owners(t, a), "10-200-1-0-24=a 10-200-2-0-24=b fd00-200-1---64=a"; got != want {
		t.Errorf("blocks: %s, want %s", got, want)
	}
	state, _ := a.State()
	if want := []Peer{{"b", []netip.Addr{netip.MustParseAddr("192.0.2.2")}}, {"c", []netip.Addr{netip.MustParseAddr("192.0.2.3")}}}; !reflect.DeepEqual(state.Peers, want) {
		t.Errorf("peers: %v, want %v", state.Peers, want)
	}

	// A node's own address changes: its agent tells.
	s.Apply(t, "nodes", aNode("b", "192.0.2.22", "10.200.2.0/24"))
	a.eventually(t, "remote", "10.200.2.0/24=b[192.0.2.22] 10.200.3.0/24=c[192.0.2.3]", remote)

	// Its Node is made anew, and has no address until kubelet tells: what is known stays.
	was, _ := b.State()
	s.Remove("nodes", "", "b")
	s.Apply(t, "nodes", aNode("b", "", "10.200.2.0/24"))
	<-time.After(4 * quick.grace)
	a.eventually(t, "remote", "10.200.2.0/24=b[192.0.2.22] 10.200.3.0/24=c[192.0.2.3]", remote)
	if state, _ = b.State(); len(state.Node.Addrs) != 1 {
		t.Errorf("addresses that b knows to be its own: %v", state.Node.Addrs)
	}
	if was.UID == "" || state.UID == was.UID {
		t.Errorf("b's Node was %q, and is %q", was.UID, state.UID)
	}
}

func TestOldRangeIsKeptUntilItsLastPodIsGone(t *testing.T) {
	s := apitest.New(t)
	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.1.0/24"))
	s.Apply(t, "nodes", aNode("b", "192.0.2.2", "10.200.2.0/24"))
	a, b := start(t, s, "a", RangesNode), start(t, s, "b", RangesNode)
	a.eventually(t, "ranges", "[10.200.1.0/24]", ranges)
	a.hold("10.200.1.5")

	s.Apply(t, "nodes", aNode("a", "192.0.2.1", "10.200.9.0/24"))
	a.eventually(t, "ranges", "[10.200.9.0/24]", ranges)
	a.eventually(t, "draining", "[10.200.1.0/24]", draining)
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1] 10.200.9.0/24=a[192.0.2.1]", remote)

	a.mu.Lock()
	a.fail = fmt.Errorf("no map") // it cannot be told whether the pod is gone
	a.mu.Unlock()
	a.drop("10.200.1.5")
	<-time.After(4 * quick.grace)
	b.eventually(t, "remote", "10.200.1.0/24=a[192.0.2.1] 10.200.9.0/24=a[192.0.2.1]", remote)
	a.mu.Lock()
	a.fail = nil
	a.mu.Unlock()
	b.eventually(t, "remote", "10.200.9.0/24=a[192.0.2.1]", remote)
	a.eventually(t, "draining", "[]", draining)
}

func TestBlockName(t *testing.T) {
	for _, c := range [][2]string{
		{"10.200.1.0/24", "10-200-1-0-24"}, {"fd00:1::/64", "fd00-1---64"}, {"::/64", "0---64"}, {"::1/128", "0--1-128"},
	} {
		if got := BlockName(netip.MustParsePrefix(c[0])); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}
