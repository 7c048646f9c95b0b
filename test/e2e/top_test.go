// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/test/netns"
)

// ctl is what a verb of culvertctl prints.
func ctl(t testing.TB, n *netns.Node, args ...string) string {
	t.Helper()
	return n.MustRun(t, "", append([]string{filepath.Join(n.Bin.Dir, "culvertctl"), "--pin-path", n.PinPath}, args...)...)
}

// passing are the bit/s that a view shows of a pod; nil: unknown.
type passing struct{ Rx, Tx *uint64 }

// O1: top and limits show what pods receive and send at this moment, of one whose limits
// shape it and of one that the fast path reaches past the host's side of its veth.
func TestPrivilegedO1Rates(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	limited := node.Add(t, netns.PodSpec{Name: "limited", Bandwidth: &netns.Bandwidth{IngressRate: 50e6, IngressBurst: 1e6, EgressRate: 50e6, EgressBurst: 1e6}})
	free := node.Add(t, netns.PodSpec{Name: "free"})
	idle := node.Add(t, netns.PodSpec{Name: "idle"})
	const rx, tx = 2e6, 1e6
	arrives := map[*netns.Pod]map[string]*netns.Running{}
	for _, p := range []*netns.Pod{limited, free} {
		arrives[p] = map[string]*netns.Running{}
		for way, s := range bothWays(p, outside) {
			s.Proto, s.Offer = "udp", map[string]uint64{"ingress": rx, "egress": tx}[way]
			r, err := s.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Stop)
			arrives[p][way] = r
		}
	}
	check := func(view string, show func() map[string]passing, pods ...*netns.Pod) {
		t.Helper()
		err := netns.Poll(func() error {
			totals := func(p *netns.Pod) [2]uint64 {
				return [2]uint64{arrives[p]["ingress"].Total(), arrives[p]["egress"].Total()}
			}
			before, start := map[*netns.Pod][2]uint64{}, time.Now()
			for _, p := range pods {
				before[p] = totals(p)
			}
			shown, took := show(), time.Since(start).Seconds()
			var errs []error
			for _, p := range pods {
				was, is := before[p], totals(p)
				got := shown[p.ID]
				if p == limited || loader.CountsPeers() {
					errs = append(errs, near(p.Name+" receives", got.Rx, float64(is[0]-was[0])*8/took))
				} else if got.Rx != nil {
					t.Errorf("%s: %s receives %d bit/s on a kernel that does not count it", view, p.Name, *got.Rx)
				}
				errs = append(errs, near(p.Name+" sends", got.Tx, float64(is[1]-was[1])*8/took))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Errorf("%s: %v", view, err)
		}
	}
	check("top", func() map[string]passing {
		shown := topOf(t, node, "--once")
		if p := shown[idle.ID]; p.Tx == nil || *p.Tx > 1e5 {
			t.Errorf("top: a pod that does nothing: %+v", p)
		}
		return shown
	}, limited, free)
	check("limits", func() map[string]passing { return limitsOf(t, node) }, limited)
	if shown := topOf(t, node, "--once", "--pod", free.V4.String()); len(shown) != 1 || shown[free.ID] == (passing{}) {
		t.Errorf("top --pod: %+v", shown)
	}
	t.Log("\n" + ctl(t, node, "top", "--once") + ctl(t, node, "limits"))
}

// near wants a rate that is shown within a third of what arrived meanwhile: the two were
// not measured over the same moment. In a guest they may be far apart.
func near(what string, shown *uint64, arrived float64) error {
	if shown == nil {
		return fmt.Errorf("%s: nothing is shown", what)
	}
	if netns.Emulated() && *shown > 0 {
		return nil
	}
	if got := float64(*shown); got < arrived/1.5 || got > arrived*1.5 {
		return fmt.Errorf("%s: %.0f bit/s are shown, and %.0f arrived", what, got, arrived)
	}
	return nil
}

func topOf(t *testing.T, n *netns.Node, args ...string) map[string]passing {
	t.Helper()
	var rows []struct {
		Container      string
		RxBits, TxBits *uint64
	}
	decode(t, ctl(t, n, append([]string{"top", "-o", "json"}, args...)...), &rows)
	shown := map[string]passing{}
	for _, r := range rows {
		shown[r.Container] = passing{r.RxBits, r.TxBits}
	}
	return shown
}

func limitsOf(t *testing.T, n *netns.Node) map[string]passing {
	t.Helper()
	var rows []struct {
		Container, Direction string
		Now                  *uint64
	}
	decode(t, ctl(t, n, "limits", "-o", "json", "--interval", "1s"), &rows)
	shown := map[string]passing{}
	for _, r := range rows {
		p := shown[r.Container]
		if r.Direction == "ingress" {
			p.Rx = r.Now
		} else {
			p.Tx = r.Now
		}
		shown[r.Container] = p
	}
	return shown
}

func decode(t *testing.T, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// O1: metrics count every packet and byte of a pod, and every drop.
func TestPrivilegedO1Metrics(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	node, outside := c.Nodes[0], c.Outside()
	pod, _ := serve(t, node, netns.PodSpec{Name: "pod", Bandwidth: &netns.Bandwidth{IngressRate: 8e6, IngressBurst: 1e6}})
	device := pod.Host.Name
	series := func(name, labels string) string {
		return fmt.Sprintf("%s{%s} ", name, strings.ReplaceAll(labels, "DEVICE", device))
	}
	read := func(key string) float64 {
		for _, line := range strings.Split(ctl(t, node, "metrics"), "\n") {
			if value, ok := strings.CutPrefix(line, key); ok {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		return -1
	}
	for key, want := range map[string]float64{
		series("culvert_pod_limit_bytes_per_second", `device="DEVICE",direction="ingress"`): 1e6,
		series("culvert_pod_shaper_drop_packets_total", `device="DEVICE"`):                  0,
		series("culvert_table_rows", `table="pods"`):                                        2,
		"culvert_loaded ": 1,
		"culvert_faults ": 0,
	} {
		if got := read(key); got != want {
			t.Errorf("%sis %v, want %v", key, got, want)
		}
	}
	rx, tx := series("culvert_pod_receive_packets_total", `device="DEVICE"`), series("culvert_pod_transmit_packets_total", `device="DEVICE"`)
	before := [2]float64{read(rx), read(tx)}
	const calls = 20
	for range calls {
		ask(t, outside.NS, call("udp", pod.V4, 80), want{server: pod.Name})
	}
	// Other packets (ND, MLD) may pass too, few of them.
	for i, key := range []string{rx, tx} {
		if n := read(key) - before[i]; n < calls || n > 2*calls {
			t.Errorf("%sgrew by %v, want %d and little more", key, n, calls)
		}
	}
	pod.IP(t, "addr add 192.0.2.66/32 dev lo")
	forged := netns.Call{Proto: "udp", From: netip.MustParseAddrPort("192.0.2.66:0"), To: netip.AddrPortFrom(outside.V4, 80)}
	srv := outside.Serve(t, 80)
	lie(t, node, pod.NS, forged, srv)
	if got := read(series("culvert_drop_packets_total", `device="DEVICE",hook="from_pod",reason="source"`)); got != 1 {
		t.Errorf("one packet was dropped, metrics say %v", got)
	}
	if out := ctl(t, node, "counters", "--pod", pod.V6.String(), "--by", "hook,reason", "-o", "json"); !strings.Contains(out, `"packets": 1,`) {
		t.Errorf("counters: %s", out)
	}
	t.Log("\n" + ctl(t, node, "counters"))
}
