// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// flowNet is the stage of the flow cases: two nodes with kube-proxy's rules, the
// pods "pod" and "local" on the first, "remote" on the second.
type flowNet struct {
	*cluster
	clients map[string]client
	targets map[string]target
	port    atomic.Uint32 // the last client port taken
}

// client is where a case starts. Its address is masqueraded by some targets.
type client struct {
	ns *netns.NS
	at func(int) netip.Addr
}

// target is what a flow calls and what is to answer.
type target struct {
	at     func(int) netip.Addr
	port   uint16
	server *netns.Server
	masq   bool // the server sees an address of the node
}

func newFlowNet(t *testing.T) *flowNet { return newFlowNetBy(t, netfilters[0]) }

// newFlowNetBy has the rules written by one of the netfilters.
func newFlowNetBy(t *testing.T, nf netfilter) *flowNet {
	return newFlowNetOf(t, nf, wire(t, netns.Layout{Nodes: 2}))
}

func newFlowNetOf(t *testing.T, nf netfilter, c *cluster) *flowNet {
	n0, n1, out := c.Nodes[0], c.Nodes[1], c.Outside()
	pod, onPod := serve(t, n0, netns.PodSpec{Name: "pod"})
	local, onLocal := serve(t, n0, netns.PodSpec{Name: "local", Ports: append(netns.Both(8080, 80), netns.Both(8081, 80)...)})
	remote, onRemote := serve(t, n1, netns.PodSpec{Name: "remote"})
	onOutside := out.Serve(t, 80)
	services := []service{
		{number: 1, nodePort: 30001, endpoint: local.Addr},
		{number: 2, nodePort: 30002, endpoint: local.Addr, local: true},
		{number: 3, nodePort: 30003, endpoint: remote.Addr},
		{number: 4, endpoint: pod.Addr},
		{number: 5, endpoint: out.Addr},
	}
	for _, n := range c.Nodes {
		nf.proxy(t, n, services)
	}
	nf.hostPorts(t, n0, []service{{number: 1, nodePort: 9090, endpoint: local.Addr}, {number: 2, nodePort: 9091, endpoint: pod.Addr}})
	up := n0.Uplinks[0]
	f := &flowNet{
		cluster: c,
		clients: map[string]client{
			"pod": {pod.NS, pod.Addr}, "remote": {remote.NS, remote.Addr}, "outside": {out.NS, out.Addr}, "host": {n0.NS, up.Addr},
		},
		targets: map[string]target{
			"svc-local":   {services[0].clusterAddr, 80, onLocal, false},
			"svc-remote":  {services[2].clusterAddr, 80, onRemote, false},
			"svc-self":    {services[3].clusterAddr, 80, onPod, true},
			"svc-outside": {services[4].clusterAddr, 80, onOutside, false},
			"np-local":    {up.Addr, 30001, onLocal, true},
			"np-policy":   {up.Addr, 30002, onLocal, false},
			"np-remote":   {up.Addr, 30003, onRemote, true},
			"pod-local":   {local.Addr, 80, onLocal, false},
			"pod-remote":  {remote.Addr, 80, onRemote, false},
			"outside":     {out.Addr, 80, onOutside, false},
			"hostport":    {up.Addr, 8080, onLocal, false},
			"hostport2":   {up.Addr, 8081, onLocal, false},
			"crio":        {up.Addr, 9090, onLocal, false},
			"crio-pod":    {up.Addr, 9091, onPod, false},
			"crio-self":   {up.Addr, 9091, onPod, true},
		},
	}
	f.port.Store(20000)
	return f
}

// runner runs one script for one protocol and family.
type runner struct {
	f           *flowNet
	t           *testing.T
	from, proto string
	family      int
	port        uint16
	script      string // for messages
	open        map[string]*netns.Flow
	to          map[string]target
	held        map[string][]byte
	seen        map[string]netip.AddrPort // the client as the server last saw it
	socket      *netns.Flow               // UDP: the one all flows share
}

func (f *flowNet) runner(t *testing.T, from, proto string, family int) *runner {
	return &runner{
		f: f, t: t, from: from, proto: proto, family: family, port: uint16(f.port.Add(1)),
		open: map[string]*netns.Flow{}, to: map[string]target{}, held: map[string][]byte{}, seen: map[string]netip.AddrPort{},
	}
}

func words(script string) iter.Seq[string] { return strings.FieldsSeq(script) }

// step runs one word and says whether the script goes on.
func (r *runner) step(word string) bool {
	r.t.Helper()
	name, target, opens := strings.Cut(word, "=")
	var err error
	switch {
	case opens:
		err = r.dial(name, target)
	case word == "evict":
		err = r.evict(r.port)
	case strings.HasPrefix(word, "^"):
		err = r.evict(r.seen[word[1:]].Port())
	case strings.HasPrefix(word, "-"):
		r.hangUp(word[1:])
	case strings.HasPrefix(word, "*"):
		r.open[word[1:]].Reset()
		r.hangUp(word[1:])
	case strings.HasSuffix(word, "?"):
		err = r.hold(word[:len(word)-1])
	case strings.HasSuffix(word, "!"):
		err = r.release(word[:len(word)-1])
	case strings.HasSuffix(word, "~"):
		err = r.answerOrReset(word[:len(word)-1])
	default:
		err = r.ask(word)
	}
	if err != nil {
		r.t.Errorf("%s from %s, client port %d, script %q at %q: %v", r.proto, r.from, r.port, r.script, word, err)
	}
	return err == nil
}

func (r *runner) dial(name, to string) error {
	to, other, moved := strings.Cut(to, "@")
	tgt, ok := r.f.targets[to]
	if !ok {
		return fmt.Errorf("no target %q", to)
	}
	port := r.port
	if moved {
		if port = r.seen[other].Port(); port == r.port {
			return fmt.Errorf("want another port than the client's own for flow %s", other)
		}
	}
	c := call(r.proto, tgt.at(r.family), tgt.port)
	c.From = netip.AddrPortFrom(r.f.clients[r.from].at(r.family), port)
	r.to[name] = tgt
	if r.socket != nil {
		r.open[name] = r.socket.Toward(c.To)
		return r.ask(name)
	}
	flow, err := r.f.clients[r.from].ns.Open(c)
	if err != nil {
		return fmt.Errorf("want an answer by %s, got %w", tgt.server.Name, err)
	}
	r.open[name] = flow
	if c.Proto == "udp" {
		r.socket = flow
	}
	return r.ask(name)
}

func (r *runner) ask(name string) error {
	reply, err := r.open[name].Ask()
	return r.judge(name, reply, err)
}

// judge compares an answer with what the target promises.
func (r *runner) judge(name string, reply netns.Reply, err error) error {
	tgt := r.to[name]
	w := want{server: tgt.server.Name, remote: only(r.f.clients[r.from].at(r.family))}
	if tgt.masq {
		w.remote = append(r.f.Nodes[0].Addrs(), tunnelAddr(r.f.Nodes[0], r.family))
	}
	if r.from == "host" {
		w.remote = nil
	}
	if err == nil {
		r.seen[name] = reply.Remote
		err = w.check(reply)
	}
	if err != nil {
		return fmt.Errorf("want %s, got %w", w, err)
	}
	return nil
}

func (r *runner) key(name string) string { return fmt.Sprintf("%d-%s", r.port, name) }

func (r *runner) hold(name string) error {
	req, err := r.open[name].Send(r.key(name))
	if err != nil {
		return err
	}
	r.held[name] = req
	return r.to[name].server.Held(r.key(name))
}

func (r *runner) release(name string) error {
	if err := r.to[name].server.Release(r.key(name)); err != nil {
		return err
	}
	reply, err := r.open[name].Await(r.held[name])
	return r.judge(name, reply, err)
}

// answerOrReset: the packet may meet no row, or not the one it had; then one end
// has to be reset, so that neither waits for ever.
func (r *runner) answerOrReset(name string) error {
	srv, req := r.to[name].server, r.held[name]
	client := r.seen[name] // its port may have been changed
	var err error
	if req != nil {
		err = srv.Release(r.key(name))
	} else {
		req, err = r.open[name].Send("")
	}
	// A delayed acknowledgement, up to 40 ms after what it is for, may have been reset before.
	// Whoever reads the socket may have taken the error first.
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || err != nil && srv.WasReset(client) {
		return nil
	}
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		reply, err := r.open[name].Await(req)
		if !errors.Is(err, syscall.ECONNRESET) {
			err = r.judge(name, reply, err)
		}
		answer <- err
	}()
	for {
		select {
		case err := <-answer:
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				return fmt.Errorf("want an answer or a reset of either end: %w", err)
			}
			return nil
		case <-time.After(5 * time.Millisecond):
			if srv.WasReset(client) {
				return nil
			}
		}
	}
}

func (r *runner) hangUp(name string) {
	if r.socket == nil {
		r.open[name].Close()
	}
	delete(r.open, name)
}

func (r *runner) close() {
	for _, f := range r.open {
		f.Close()
	}
	r.socket.Close()
}
