// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// The built agent, on nodes that nothing else connects, from their Nodes in an API server to their
// uninstallation: one story, in which each part begins where the one before it has ended.
func TestPrivilegedCulvertd(t *testing.T) {
	t.Parallel()
	if netns.Emulated() {
		t.Skip("three agents of one slow processor; the kernel's part is that of TestPrivilegedRemotePods")
	}
	a := newAgents(t)
	var before []string
	for i, n := range a.Nodes {
		before = append(before, everything(t, n))
		a.start(t, i)
	}
	defer func() {
		a.tellLogs(t)
		a.signal(syscall.SIGKILL)
	}()
	for i, n := range a.Nodes {
		a.gives(t, i, n.PodRange(4), n.PodRange(6))
		a.pods = append(a.pods, a.serve(t, i, fmt.Sprintf("p%d", i)))
	}
	a.ready(t)
	for _, part := range []struct {
		name string
		play func(*testing.T)
	}{
		{"Start", a.connected},
		{"AgentsKilled", a.killed},
		{"APIServerDown", a.cutOff},
		{"NodesMadeAnew", a.madeAnew},
		{"AgentsEnd", a.ends},
		{"Uninstall", func(t *testing.T) { a.uninstalled(t, before) }},
	} {
		if !t.Run(part.name, part.play) {
			return
		}
	}
}

// connected: Nodes with ranges became blocks, remotes, routes and configurations, and the agents say
// that all is well.
func (a *agents) connected(t *testing.T) {
	a.all(t, protos, a.pods...)
	owners := map[string]string{}
	for name, b := range a.blocks(t) {
		owners[name] = b.Spec.Node
	}
	want := map[string]string{"10-244-0-0-24": "node0", "10-244-1-0-24": "node1", "10-244-2-0-24": "node2",
		"fd00-244---64": "node0", "fd00-244-1---64": "node1", "fd00-244-2---64": "node2"}
	if fmt.Sprint(owners) != fmt.Sprint(want) {
		t.Errorf("blocks: %v, want %v", owners, want)
	}
	for i, n := range a.Nodes {
		direct, tunnel := 2, 2 // ranges
		if i == 2 {
			direct, tunnel = 0, 4
		}
		_, metrics, err := a.get(i, "/metrics")
		for _, line := range []string{"culvert_agent_ready 1", `culvert_agent_ranges{kind="given"} 2`,
			fmt.Sprintf(`culvert_agent_remote_ranges{kind="direct"} %d`, direct), fmt.Sprintf(`culvert_agent_remote_ranges{kind="tunnel"} %d`, tunnel)} {
			if !strings.Contains("\n"+metrics, "\n"+line+"\n") {
				t.Errorf("%s: /metrics has no %s (%v)", n.Name, line, err)
			}
		}
		eventually(t, func() error { return a.told(n.Name) })
		if err := a.answers(i, "/healthz"); err != nil {
			t.Error(err)
		}
	}
	for _, route := range []string{"10.244.1.0/24 via 10.10.0.11 dev up0", "10.244.2.0/24 via 169.254.1.1 dev " + tunnelDev + " src 10.244.0.0", "unreachable 10.244.0.0/24"} {
		if out := a.Nodes[0].MustRun(t, "", "ip", "route", "show", "proto", "68"); !strings.Contains(out, route) {
			t.Errorf("no route %s in %s", route, out)
		}
	}
}

// killed: packets and pods' starts need no agent.
func (a *agents) killed(t *testing.T) {
	a.during(t, func() {
		a.signal(syscall.SIGKILL)
		a.alone(t, "alone")
		for i := range a.Nodes {
			a.start(t, i)
		}
		eventually(t, func() error { return a.answers(0, "/healthz") })
		a.signal(syscall.SIGKILL) // at whatever it is doing by now
		for i := range a.Nodes {
			a.start(t, i)
		}
		a.ready(t)
	})
}

// cutOff: nor do they need the API server, nor an agent that has ever reached it.
func (a *agents) cutOff(t *testing.T) {
	a.during(t, func() {
		var was []string
		for _, n := range a.Nodes {
			was = append(was, everything(t, n))
		}
		a.api.SetDown(true)
		a.alone(t, "cut")
		for i := range a.Nodes {
			for _, path := range []string{"/healthz", "/readyz"} {
				if err := a.answers(i, path); err != nil {
					t.Error(err)
				}
			}
		}
		a.signal(syscall.SIGKILL)
		for i := range a.Nodes {
			a.start(t, i)
			eventually(t, func() error { return a.answers(i, "/healthz") })
		}
		eventually(t, func() error {
			code, body, err := a.get(1, "/readyz")
			if err != nil || code == http.StatusOK || !strings.HasPrefix(body, "cluster: ") {
				return fmt.Errorf("an agent that knows nothing says %d: %s (%v)", code, body, err)
			}
			return nil
		})
		late := a.alone(t, "late")
		for i, n := range a.Nodes {
			if now := everything(t, n); withoutPods(now) != withoutPods(was[i]) {
				t.Errorf("%s changed: %s", n.Name, difference(was[i], now))
			}
		}
		a.api.SetDown(false)
		a.ready(t)
		eventually(t, func() error { return a.reported(t, late...) })
	})
}

// madeAnew: two Nodes are deleted and made anew at once, one with a new range, the other with that
// one's old range. Old pods keep what they have, and new ones get nothing of it.
func (a *agents) madeAnew(t *testing.T) {
	new4, new6 := netip.MustParsePrefix("10.244.22.0/24"), netip.MustParsePrefix("fd00:244:22::/64")
	old4, old6 := a.Nodes[2].PodRange(4), a.Nodes[2].PodRange(6)
	a.during(t, func() {
		a.api.Remove("nodes", "", a.Nodes[1].Name)
		a.api.Remove("nodes", "", a.Nodes[2].Name)
		a.apply(t, 2, new4, new6)
		a.apply(t, 1, old4, old6)
		a.gives(t, 2, new4, new6)
		pods := append(slices.Clone(a.pods), a.serve(t, 2, "new"))
		a.gives(t, 1, old4, old6)
		for k := range 3 {
			pods = append(pods, a.serve(t, 1, fmt.Sprintf("heir%d", k)))
		}
		a.ready(t)
		for _, v := range families {
			had := map[netip.Addr]string{}
			for _, p := range pods {
				if other, twice := had[p.Addr(v)]; twice {
					t.Errorf("%s is of %s and of %s", p.Addr(v), other, p.Name)
				}
				had[p.Addr(v)] = p.Name
			}
			if of := map[int]netip.Prefix{4: new4, 6: new6}[v]; !of.Contains(pods[3].Addr(v)) {
				t.Errorf("the new pod has %s", pods[3].Addr(v))
			}
			if of := map[int]netip.Prefix{4: old4, 6: old6}[v]; !of.Contains(pods[4].Addr(v)) || !of.Contains(a.pods[2].Addr(v)) {
				t.Errorf("%s has %s, and %s has %s: want both of %s", pods[4].Name, pods[4].Addr(v), a.pods[2].Name, a.pods[2].Addr(v), of)
			}
		}
		a.all(t, small, pods...)
	})
}

// ends: an agent that is asked to end leaves the node as it is, and so does its successor.
func (a *agents) ends(t *testing.T) {
	a.during(t, func() {
		var was []string
		for _, n := range a.Nodes {
			was = append(was, everything(t, n)+a.remotes(t, n))
		}
		for run := range 2 {
			for _, err := range a.signal(syscall.SIGTERM) {
				if err != nil {
					t.Errorf("run %d ended: %v", run, err)
				}
			}
			for i, n := range a.Nodes {
				if now := everything(t, n) + a.remotes(t, n); now != was[i] {
					t.Errorf("%s after run %d: %s", n.Name, run, difference(was[i], now))
				}
			}
			if run == 0 {
				for i := range a.Nodes {
					a.start(t, i)
				}
				a.ready(t)
			}
		}
		a.all(t, small, a.pods...)
	})
}

// uninstalled: without agents, pods and configurations, nothing is left.
func (a *agents) uninstalled(t *testing.T, before []string) {
	for _, p := range a.pods {
		p.Del(t)
	}
	for i, n := range a.Nodes {
		a.checkEmpty(t, n)
		if err := os.Remove(filepath.Join(a.confs[i], "10-culvert.conflist")); err != nil {
			t.Error(err)
		}
		if _, err := uninstall(t, n); err != nil {
			t.Errorf("%s: uninstall: %v", n.Name, err)
		}
		if now := everything(t, n); now != before[i] {
			t.Errorf("%s: left: %s", n.Name, difference(before[i], now))
		}
		if _, err := os.Stat(n.PinPath); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", n.PinPath, err)
		}
	}
}
