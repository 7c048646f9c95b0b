// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/test/netns"
)

// X1: foreign filters and programs come and go during traffic, on the uplink, lo and a pod's
// veth, with pods and another build of ours coming meanwhile: no flow notices, they see
// packets while they are there, and of ours there is one a hook all the time.
func TestPrivilegedX1Reattach(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "clsact", "tcx"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := &beside{cluster: wire(t, netns.Layout{}), mode: map[string]any{"attach": mode}}
			if b.probe(t); mode == "tcx" && !b.tcx {
				t.Skip("kernel without tcx")
			}
			node, outside := b.Nodes[0], b.Outside()
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: b.mode})
			node.Serve(t, 81)
			outside.Serve(t, 80)
			for _, dev := range []string{"up0", "lo", a.Host.Name} {
				// The qdisc itself is not made during traffic: for that the kernel stops the device
				// (dev_deactivate), and what is sent meanwhile is lost, whoever does it.
				hook{node, dev, false}.clsact(t, "stays", 7)
			}
			rounds, stop := keepAsking(t, everyWay(b.cluster, a))
			times := 3
			if netns.Emulated() {
				times = 2
			}
			for i := range times {
				b.foreign = nil
				for _, dev := range []string{"up0", "lo", a.Host.Name} {
					b.surround(t, dev)
				}
				if i == 1 {
					otherBuild(t, node)
				}
				node.Add(t, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Ports: netns.Both(9000, 80), Conf: b.mode}).Del(t)
				b.sees(t, a, "during traffic")
				b.once(t, a)
				for _, f := range b.foreign {
					if err := f.off(); err != nil {
						t.Errorf("take %s off: %v", f.name, err)
					}
				}
				moreRounds(t, rounds, 2)
				b.once(t, a)
			}
			stop()
			if err := a.Check(); err != nil {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
}

// everyWay is flows to and from the pod that are to go on, whatever is done.
func everyWay(c *cluster, a *netns.Pod) []steady {
	node, outside := c.Nodes[0], c.Outside()
	var all []steady
	for _, proto := range small {
		for _, v := range families {
			up := node.Uplinks[0].Addr(v)
			all = append(all,
				steady{from: outside.NS, call: call(proto, up, 8080), want: want{server: "a", remote: only(outside.Addr(v))}},
				steady{from: outside.NS, call: call(proto, a.Addr(v), 80), want: want{server: "a"}},
				steady{from: node.NS, call: call(proto, up, 8080), want: want{server: "a"}},
				steady{from: node.NS, call: call(proto, loopback[v], 8080), want: want{server: "a"}},
				steady{from: a.NS, call: call(proto, outside.Addr(v), 80), want: want{server: outside.Name}},
				steady{from: a.NS, call: call(proto, up, 8080), want: want{server: "a"}},
			)
		}
	}
	for i := range all { // a busy machine stops us for seconds; a lost datagram is lost in any case
		all[i].call.Timeout = 4 * netns.Patience
	}
	return all
}

// moreRounds waits until every flow was asked n times more. What is not answered in time is
// told by who asks; a slow machine may take long for a round.
func moreRounds(t *testing.T, rounds *atomic.Int32, n int32) {
	t.Helper()
	enough := rounds.Load() + n
	var err error
	for range 6 {
		err = netns.Poll(func() error {
			if now := rounds.Load(); now < enough && !t.Failed() {
				return fmt.Errorf("%d rounds, want %d", now, enough)
			}
			return nil
		})
		if err == nil {
			return
		}
	}
	t.Error(err)
}

// X1: who takes the whole clsact qdisc away takes our filters with it, where ours are
// filters. CHECK tells; the next ADD puts those of the uplink back, and the pod's traffic
// goes on. Programs by tcx do not notice.
func TestPrivilegedX1Wiped(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "clsact"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := &beside{cluster: wire(t, netns.Layout{}), mode: map[string]any{"attach": mode}}
			b.probe(t)
			node, outside := b.Nodes[0], b.Outside()
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: b.mode})
			hook{node, "up0", false}.clsact(t, "foreign", 1) // so that there is a qdisc in each mode
			ours := hook{node, "up0", false}
			node.MustRun(t, "", "tc", "qdisc", "del", "dev", "up0", "clsact")
			left, err := count(ours.programs(t), pinned(t, node, "from_uplink")), a.Check()
			if survives := mode == "auto" && b.tcx; survives != (left == 1) || survives != (err == nil) {
				t.Errorf("without the qdisc: %d of ours at the uplink, CHECK: %v", left, err)
			}
			if err != nil && !strings.Contains(err.Error(), "up0") && !strings.Contains(err.Error(), "uplink") {
				t.Errorf("CHECK does not name the uplink: %v", err)
			}
			node.Add(t, netns.PodSpec{Name: "b", Conf: b.mode})
			if err := a.Check(); err != nil {
				t.Errorf("CHECK after the next ADD: %v", err)
			}
			b.once(t, a)
			// The pod's own hooks are filters in both modes: reconcile, or GC, finds them gone.
			node.MustRun(t, "", "tc", "qdisc", "del", "dev", a.Host.Name, "clsact")
			if err := a.Check(); err == nil || !strings.Contains(err.Error(), "from_pod") {
				t.Errorf("CHECK without the pod's programs: %v", err)
			}
			said(t, reconcile(t, node, "--attach", mode), "attached the programs to "+a.Host.Name)
			b.once(t, a)
			each(t, small, func(t *testing.T, proto string, v int) {
				ask(t, outside.NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "a", remote: only(outside.Addr(v))})
			})
		})
	}
}

func count(ids []ebpf.ProgramID, id ebpf.ProgramID) (n int) {
	for _, i := range ids {
		if i == id {
			n++
		}
	}
	return n
}
