// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// dropInvalid has conntrack at work and holds packets to what it knows.
const dropInvalid = `
table inet filter {
	chain forward {
		type filter hook forward priority 0
		ct state invalid drop
	}
	chain input {
		type filter hook input priority 0
		ct state invalid drop
	}
}
`

// N6: flushing every rule during traffic breaks nothing: not what is open, and nothing
// that is opened after.
func TestPrivilegedN6Flush(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	up := node.Uplinks[0]
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	masq, _ := serve(t, node, netns.PodSpec{Name: "masq", Conf: map[string]any{"ipMasq": true}})
	outside.Serve(t, 80)
	calls := func(proto string, v int) []steady {
		return []steady{
			{outside.NS, call(proto, up.Addr(v), 8080), want{server: "a", remote: only(outside.Addr(v))}, nil},
			{outside.NS, call(proto, a.Addr(v), 80), want{server: "a", remote: only(outside.Addr(v))}, nil},
			{b.NS, call(proto, a.Addr(v), 80), want{server: "a", remote: only(b.Addr(v))}, nil},
			{b.NS, call(proto, up.Addr(v), 8080), want{server: "a", remote: only(b.Addr(v))}, nil},
			{b.NS, call(proto, outside.Addr(v), 80), want{server: outside.Name, remote: only(b.Addr(v))}, nil},
			{masq.NS, call(proto, outside.Addr(v), 80), want{server: outside.Name, remote: only(up.Addr(v))}, nil},
			{node.NS, call(proto, a.Addr(v), 80), want{server: "a"}, nil},
		}
	}
	flush := func() {
		for _, nf := range netfilters {
			nf.flush(t, node)
		}
	}
	others := func() {
		node.MustRun(t, dropInvalid, "nft", "-f", "-")
		for _, nf := range netfilters {
			nf.proxy(t, node, []service{{number: 1, nodePort: 30001, endpoint: a.Addr}})
		}
	}
	others()
	var flows []steady
	for _, v := range families {
		for _, proto := range small {
			flows = append(flows, calls(proto, v)...)
		}
		// The other fragments are the stack's, and netfilter loses those that it is putting
		// together while its rules come and go.
		flows = append(flows, steady{outside.NS, call("udp4000", up.Addr(v), 8080), want{server: "a", remote: only(outside.Addr(v))}, nil})
	}
	rounds, stop := keepAsking(t, flows)
	flushes := 4
	if netns.Emulated() {
		flushes = 2
	}
	for i := range flushes {
		if err := netns.Poll(func() error { // spread over the rounds
			if n := rounds.Load(); n < int32(2*i+1) && !t.Failed() {
				return fmt.Errorf("round %d", n)
			}
			return nil
		}); err != nil {
			t.Errorf("traffic: %v", err)
		}
		flush()
		each(t, protos, func(t *testing.T, proto string, v int) {
			for _, s := range calls(proto, v) {
				ask(t, s.from, s.call, s.want)
			}
		})
		others()
	}
	stop()
}

// steady is a call, and the flow that repeats it.
type steady struct {
	from *netns.NS
	call netns.Call
	want want
	flow *netns.Flow
}

// keepAsking opens the flows and asks on each, round after round, until stop is called.
func keepAsking(t *testing.T, flows []steady) (rounds *atomic.Int32, stop func()) {
	t.Helper()
	for i := range flows {
		f, err := flows[i].from.Open(flows[i].call)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		flows[i].flow = f
	}
	rounds = new(atomic.Int32)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, s := range flows {
				r, err := s.flow.Ask()
				if err == nil {
					err = s.want.check(r)
				}
				if err != nil {
					t.Errorf("round %d, from %s: want %s: %v", rounds.Load(), s.from.Name, s.want, err)
					return
				}
			}
			rounds.Add(1)
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	return rounds, func() { close(quit); <-done }
}

// N5: whatever rp_filter says, also later, and with a FORWARD policy of drop, the
// paths that never pass the stack go on.
func TestPrivilegedN5Strict(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	node.Serve(t, 80)
	for _, filter := range []string{"0", "1", "2"} {
		t.Run("rp_filter"+filter, func(t *testing.T) {
			for _, dev := range []string{"all", "up0", "default"} {
				node.Sysctl(t, "net/ipv4/conf/"+dev+"/rp_filter", filter)
			}
			if filter == "1" { // from here on
				node.MustRun(t, "table inet strict { chain forward { type filter hook forward priority 0; policy drop; }; }", "nft", "-f", "-")
			}
			each(t, small, func(t *testing.T, proto string, v int) {
				up := node.Uplinks[0].Addr(v)
				ask(t, outside.NS, call(proto, a.Addr(v), 80), want{server: "a"})
				ask(t, outside.NS, call(proto, up, 8080), want{server: "a"})
				ask(t, b.NS, call(proto, a.Addr(v), 80), want{server: "a"})
				ask(t, b.NS, call(proto, up, 8080), want{server: "a"})
				ask(t, node.NS, call(proto, up, 8080), want{server: "a"})
				ask(t, node.NS, call(proto, a.Addr(v), 80), want{server: "a"})
				ask(t, b.NS, call(proto, up, 80), want{server: node.Name})
			})
		})
	}
}

// N7: no rule exists because of us, and no tool is executed: in a PATH where
// each tool leaves a mark, none is left.
func TestPrivilegedN7NoRules(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	dir := t.TempDir()
	mark := filepath.Join(dir, "executed")
	for _, tool := range []string{"iptables", "ip6tables", "iptables-save", "iptables-restore", "iptables-nft", "iptables-legacy", "nft", "ip", "tc", "bpftool", "ipset", "conntrack", "sysctl"} {
		script := fmt.Sprintf("#!/bin/sh\necho %s $* >>%s\n", tool, mark)
		if err := os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := node.TryAddEnv(netns.PodSpec{
		Name: "p", NS: netns.New(t, "p"), Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e7, EgressRate: 1e7},
		Conf: map[string]any{"ipMasq": true},
	}, map[string]string{"PATH": dir})
	if err != nil {
		t.Fatal(err)
	}
	p.Serve(t, 80)
	ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "p"})
	checkNoRules(t, node)
	if err := p.TryDel(map[string]string{"PATH": dir}); err != nil {
		t.Error(err)
	}
	checkNoRules(t, node)
	if b, err := os.ReadFile(mark); err == nil {
		t.Errorf("executed: want nothing, got\n%s", b)
	}
}

func checkNoRules(t *testing.T, n *netns.Node) {
	t.Helper()
	if out := n.MustRun(t, "", "nft", "list", "ruleset"); strings.TrimSpace(out) != "" {
		t.Errorf("nft list ruleset: want nothing, got\n%s", out)
	}
	for _, tool := range []string{"iptables-save", "ip6tables-save"} {
		for line := range strings.Lines(n.MustRun(t, "", tool)) {
			if strings.HasPrefix(line, "-A") {
				t.Errorf("%s: want no rule, got %s", tool, line)
			}
		}
	}
}
