// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// S4, CVE-2023-27595: programs are replaced in their places, by an ADD of another build,
// and not for a moment without: of the forged packets that a pod sends all the while
// none gets out, and of the honest traffic nothing is lost.
func TestPrivilegedS4Replace(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "clsact", "tcx"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := wire(t, netns.Layout{}, "source")
			node, outside := c.Nodes[0], c.Outside()
			probe := &beside{cluster: c}
			if probe.probe(t); mode == "tcx" && !probe.tcx {
				t.Skip("kernel without tcx")
			}
			conf := map[string]any{"attach": mode}
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: conf})
			liar := node.Add(t, netns.PodSpec{Name: "liar", Conf: conf})
			link, wire := liar.Link(t, liar.IfName), outside.Link(t, "port0")
			madeUp := netip.MustParseAddr("192.0.2.66")
			forged := packet.Packet{DstMAC: mac(t, liar.Host.MAC), SrcMAC: packet.MAC(link.MAC), Src: madeUp, Dst: outside.V4}.
				As(packet.UDP{Src: 1, Dst: 80}).Frame()
			stop := make(chan struct{})
			var lies, answers atomic.Int64
			done := make(chan error, 2)
			pause, times := 100*time.Microsecond, 2
			if netns.Emulated() { // else the verifier hardly gets the processor
				pause, times = 10*time.Millisecond, 1
			}
			often, next := time.NewTicker(pause), time.NewTicker(pause)
			defer often.Stop()
			defer next.Stop()
			go func() { done <- until(stop, func() error { <-often.C; lies.Add(1); return link.Send(forged) }) }()
			f, err := outside.Open(call("tcp", node.Uplinks[0].V4, 8080))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			f = f.Within(6 * netns.Patience)
			go func() {
				done <- until(stop, func() error {
					<-next.C
					answers.Add(1)
					// Asked once, so a lost datagram is an error however long the verifier keeps the processor.
					_, err := outside.Ask(netns.Call{Proto: "udp", To: netip.AddrPortFrom(node.Uplinks[0].V4, 8080), Timeout: 6 * netns.Patience})
					if err == nil {
						_, err = f.Ask()
					}
					return err
				})
			}()
			for i := range times {
				before := pinned(t, node, "from_pod")
				otherBuild(t, node)
				enough := lies.Load() + 200
				node.Add(t, netns.PodSpec{Name: fmt.Sprintf("p%d", i), Conf: conf}).Del(t)
				if pinned(t, node, "from_pod") == before {
					t.Error("the programs were not replaced")
				}
				if err := netns.Poll(func() error {
					if lies.Load() < enough {
						return fmt.Errorf("%d forged packets sent, want %d", lies.Load(), enough)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
			close(stop)
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if got, err := wire.TryNext(func(b []byte) bool { return read(b).src == madeUp }); got != nil || err != nil {
				t.Errorf("of %d forged packets one got out: %x (%v)", lies.Load(), got, err)
			}
			if answers.Load() < 10 {
				t.Errorf("want traffic meanwhile, there were %d requests", answers.Load())
			}
			ask(t, a.NS, call("udp", node.Uplinks[0].V4, 8080), want{server: "a"})
			if mode == "tcx" {
				return
			}
			// Without the program one would have been seen.
			node.Sysctl(t, "net/ipv4/conf/all/rp_filter", "0")
			node.MustRun(t, "", "tc", "qdisc", "del", "dev", liar.Host.Name, "clsact")
			if err := link.Send(forged); err != nil {
				t.Fatal(err)
			}
			if _, err := wire.Next(func(b []byte) bool { return read(b).src == madeUp }); err != nil {
				t.Errorf("without the program: %v", err)
			}
		})
	}
}

// until repeats f.
func until(stop <-chan struct{}, f func() error) error {
	for {
		select {
		case <-stop:
			return nil
		default:
			if err := f(); err != nil {
				return err
			}
		}
	}
}

// otherBuild makes the next ADD believe that somebody else's build is loaded.
func otherBuild(t *testing.T, n *netns.Node) {
	t.Helper()
	config := tables(t, n).Config
	row, err := config.Get()
	if err != nil {
		t.Fatal(err)
	}
	row.Build++
	if err := config.Put(row); err != nil {
		t.Fatal(err)
	}
}

// S4: nobody but root gets to the pins, and the plugins hold no credentials: the
// directories are 0700 from the first ADD on, whatever the caller's umask is.
func TestPrivilegedS4Pins(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.PinPath = filepath.Join(node.PinPath, "deep", "er")
	serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	for _, dir := range []string{"", "v1", "v1/maps", "v1/progs", "v1/links"} {
		info, err := os.Stat(filepath.Join(node.PinPath, dir))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o700 {
			t.Errorf("%q: want mode 0700, got %#o", dir, mode)
		}
	}
}
