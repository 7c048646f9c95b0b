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

// N6: flushing every rule during traffic breaks nothing.
func TestPrivilegedN6Flush(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	node.MustRun(t, dropInvalid, "nft", "-f", "-")
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b, _ := serve(t, node, netns.PodSpec{Name: "b"})
	outside.Serve(t, 80)
	var flows []*netns.Flow
	open := func(from *netns.NS, c netns.Call) {
		f, err := from.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		flows = append(flows, f)
	}
	for _, v := range families {
		for _, proto := range protos {
			open(outside.NS, call(proto, node.Uplinks[0].Addr(v), 8080))
			open(outside.NS, call(proto, a.Addr(v), 80))
			open(b.NS, call(proto, a.Addr(v), 80))
			open(b.NS, call(proto, node.Uplinks[0].Addr(v), 8080))
			open(b.NS, call(proto, outside.Addr(v), 80))
			open(node.NS, call(proto, a.Addr(v), 80))
		}
	}
	var rounds atomic.Int32
	traffic := func(until int32) {
		for ; rounds.Load() < until; rounds.Add(1) {
			for _, f := range flows {
				if _, err := f.Ask(); err != nil {
					t.Errorf("round %d: %v", rounds.Load(), err)
					return
				}
			}
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); traffic(40) }()
	for i := range 4 {
		_ = netns.Poll(func() error { // spread over the rounds
			if n := rounds.Load(); n < int32(10*i+5) && !t.Failed() {
				return fmt.Errorf("round %d", n)
			}
			return nil
		})
		node.MustRun(t, "", "nft", "flush", "ruleset")
		node.MustRun(t, "", "iptables", "-F")
		node.MustRun(t, "", "ip6tables", "-F")
		each(t, protos, func(t *testing.T, proto string, family int) {
			ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(family), 8080), want{server: "a"})
		})
	}
	<-done
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
