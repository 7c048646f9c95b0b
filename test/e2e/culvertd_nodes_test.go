// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/culvert-cni/culvert/test/apitest"
	"github.com/culvert-cni/culvert/test/netns"
)

// agents is three nodes of which each runs the built culvertd, and the API server that all of them
// ask, outside. Nodes 0 and 1 share a subnet, node 2 is on another: to it only a tunnel leads.
type agents struct {
	*cluster
	api        *apitest.Server
	kubeconfig string
	confs      []string // directories of the nodes' configurations
	daemons    []*daemon
	pods       []*netns.Pod // one on each node, which lives through the story
}

func newAgents(t *testing.T) *agents {
	t.Helper()
	a := &agents{cluster: wire(t, netns.Layout{Nodes: 3}), daemons: make([]*daemon, 3)}
	a.part(t)
	a.moveAway(t)
	var l net.Listener
	err := a.Outside().Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(a.Outside().V4, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.api = apitest.New(t, l)
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`,
		a.api.Config().Host)
	if err := os.WriteFile(a.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, n := range a.Nodes {
		a.confs = append(a.confs, t.TempDir())
		a.apply(t, i, n.PodRange(4), n.PodRange(6))
		for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} { // these stay on
			n.Sysctl(t, s, "1")
		}
	}
	return a
}

// moveAway puts the last node behind a router, which is the host outside.
func (a *agents) moveAway(t *testing.T) {
	t.Helper()
	n, router := a.Nodes[2], a.Outside()
	v4, v6 := netip.MustParseAddr("10.12.0.12"), netip.MustParseAddr("fd00:12::12")
	for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		router.Sysctl(t, s, "1")
	}
	router.IP(t, "link add br1 type bridge forward_delay 0 mcast_snooping 0", "link set br1 up",
		"addr add 10.12.0.1/24 dev br1", "addr add fd00:12::1/64 dev br1 nodad", "link set port2 master br1")
	router.Sysctl(t, "net/ipv4/conf/br1/rp_filter", "0")
	up := &n.Uplinks[0]
	n.IP(t, "route del default via fd00:10::1", fmt.Sprintf("addr del %s/64 dev %s", up.V6, up.Dev), fmt.Sprintf("addr del %s/24 dev %s", up.V4, up.Dev),
		fmt.Sprintf("addr add %s/24 dev %s", v4, up.Dev), fmt.Sprintf("addr add %s/64 dev %s nodad", v6, up.Dev),
		"route add default via 10.12.0.1", "route add default via fd00:12::1")
	up.V4, up.V6 = v4, v6
	router.Settle(t, "br1", netip.MustParseAddr("fd00:12::1"))
	n.Settle(t, up.Dev, v6)
}

// apply makes the Node of a node have these ranges, as kubelet and controllers do; one that is gone
// is made anew.
func (a *agents) apply(t *testing.T, i int, ranges ...netip.Prefix) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Nodes[i].Name}}
	for _, r := range ranges {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, r.String())
	}
	for _, addr := range a.Nodes[i].Addrs() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	a.api.Apply(t, "nodes", node)
}

// daemon is one run of culvertd.
type daemon struct {
	cmd *exec.Cmd
	log string
	end chan error
}

// start starts the agent of a node; it ends with the test.
func (a *agents) start(t *testing.T, i int) {
	t.Helper()
	n := a.Nodes[i]
	log, err := os.CreateTemp(t.TempDir(), n.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := &daemon{log: log.Name(), end: make(chan error, 1)}
	d.cmd = exec.Command("nsenter", "--net="+n.Path(), filepath.Join(n.Bin.Dir, "culvertd"), "--node-name="+n.Name,
		"--kubeconfig="+a.kubeconfig, "--pin-path="+n.PinPath, "--cni-conf-dir="+a.confs[i])
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // a death signal is about the thread
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.end <- d.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	a.daemons[i] = d
}

// signal ends the agents, and gives how each did.
func (a *agents) signal(s syscall.Signal) (ended []error) {
	for _, d := range a.daemons {
		if d != nil {
			_ = d.cmd.Process.Signal(s)
		}
	}
	for i, d := range a.daemons {
		if d != nil {
			ended = append(ended, <-d.end)
			a.daemons[i] = nil
		}
	}
	return ended
}

// tellLogs is for who looks into a failure.
func (a *agents) tellLogs(t *testing.T) {
	for i, d := range a.daemons {
		if d != nil && t.Failed() {
			text, _ := os.ReadFile(d.log)
			t.Logf("%s:\n%s", a.Nodes[i].Name, text)
		}
	}
}

// serve adds a pod by the configuration that culvertd wrote; it answers, and sends back, on ports 80 and 7.
func (a *agents) serve(t *testing.T, i int, name string) *netns.Pod {
	t.Helper()
	conf, err := a.conf(i)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := serve(t, a.Nodes[i], netns.PodSpec{Name: name, Conf: conf})
	echoUDP(t, p.NS, 7)
	echoTCP(t, p.NS, 7)
	return p
}

// eventually waits longer than netns.Poll: for agents that start, and for client-go, which asks a
// server that was away again after some seconds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		err := netns.Poll(f)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
