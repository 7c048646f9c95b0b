// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// variant gives binaries of another release, which `make ref` builds: "build" has another
// build of the same layout, "layout" another layout.
func variant(t *testing.T, n *netns.Node, name string) *netns.Binaries {
	t.Helper()
	b := &netns.Binaries{Dir: filepath.Join(n.Bin.Dir, "variant", name), Ref: n.Bin.Ref}
	if _, err := os.Stat(filepath.Join(b.Dir, "culvertctl")); err != nil {
		if name == "layout" && os.Getenv("CI") == "" {
			t.Skipf("no binaries of another layout: install clang-19 (make generate does) and run make ref (%v)", err)
		}
		t.Fatalf("%v: run make ref", err)
	}
	return b
}

// upgraded is what `culvertctl upgrade -o json` says.
type upgraded struct {
	Before, After string
	Layout        int
	Needed        bool
	Did           []string
}

func upgrade(t *testing.T, n *netns.Node, b *netns.Binaries, args ...string) (u upgraded) {
	t.Helper()
	argv := append([]string{filepath.Join(b.Dir, "culvertctl"), "--pin-path", n.PinPath, "-o", "json", "upgrade"}, args...)
	if err := json.Unmarshal([]byte(n.MustRun(t, "", argv...)), &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// hostPortWays are the three kinds of callers of a hostPort, in both families.
func hostPortWays(c *cluster, caller *netns.Pod, port uint16) (ways []way) {
	node := c.Nodes[0]
	for _, v := range families {
		to := netip.AddrPortFrom(node.Uplinks[0].Addr(v), port)
		for name, from := range map[string]*netns.NS{"outside": c.Outside().NS, "host": node.NS, "pod": caller.NS} {
			ways = append(ways, way{fmt.Sprintf("%s -> hostPort, IPv%d", name, v), from, to})
		}
	}
	return ways
}

// S4: programs are replaced again and again by those of another build, forward and back,
// and nobody who calls a hostPort notices: no connection is reset, no datagram lost, no new
// connection refused. CULVERT_UPGRADE=full is a hundred times with 64 connections.
func TestPrivilegedS4UpgradeRun(t *testing.T) {
	swaps, streams, rate := 10, 16, 1000
	switch {
	case os.Getenv("CULVERT_UPGRADE") == "full":
		swaps, streams = 100, 64
	case netns.Emulated(): // else the verifier hardly gets the processor
		swaps, streams, rate = 2, 8, 50
	}
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	both := []*netns.Binaries{variant(t, node, "build"), node.Bin}
	server := node.Add(t, netns.PodSpec{Name: "server", Ports: netns.Both(8081, 81)})
	echoTCP(t, server.NS, 81)
	echoUDP(t, server.NS, 81)
	caller := node.Add(t, netns.PodSpec{Name: "caller"})
	tr := newOngoing()
	ways := hostPortWays(c, caller, 8081)
	for i := range streams {
		tr.stream(t, ways[i%len(ways)])
	}
	for _, w := range ways {
		tr.datagrams(t, w, time.Duration(len(ways))*time.Second/time.Duration(rate))
	}
	refused, opened := make(chan error, 1), 0
	often := time.NewTicker(20 * time.Millisecond) // closed ones keep their ports for a minute
	defer often.Stop()
	go func() {
		refused <- until(tr.stop, func() error {
			<-often.C
			w := ways[opened%len(ways)]
			opened++
			return tr.once(w)
		})
	}()
	if u := upgrade(t, node, node.Bin); u.Needed || u.Before != "" && u.Before != u.After {
		t.Errorf("an upgrade to the build that runs: %+v", u)
	}
	for i := range swaps {
		before := pinned(t, node, "from_pod")
		would := upgrade(t, node, both[i%2], "--dry-run")
		if pinned(t, node, "from_pod") != before || !would.Needed || would.Before == would.After {
			t.Fatalf("dry run %d: %+v", i, would)
		}
		did := upgrade(t, node, both[i%2])
		if pinned(t, node, "from_pod") == before || did.Before != would.Before || did.After != would.After || len(did.Did) != 1 {
			t.Fatalf("swap %d: %+v, announced %+v", i, did, would)
		}
	}
	resets, lost := tr.end(t)
	if err := <-refused; err != nil {
		t.Errorf("a new connection: %v", err)
	}
	if tr.questions.Load() < int64(streams*swaps) || tr.sent() < int64(swaps*len(ways)) || opened < swaps {
		t.Errorf("hardly any traffic: %d questions, %d datagrams, %d new connections", tr.questions.Load(), tr.sent(), opened)
	}
	fmt.Printf("upgrade: swaps %d, streams %d, resets %d, lost %d\n", swaps, streams, resets, lost)
	t.Logf("%d questions on connections, %d datagrams, %d new connections; TCP repeated %d segments; the test did not run for %s at %s",
		tr.questions.Load(), tr.sent(), opened, tr.repeated.Load(), tr.stalled.Round(time.Millisecond), tr.stalledAt.Round(time.Millisecond))
}
