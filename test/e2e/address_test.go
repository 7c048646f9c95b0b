// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// A thousand pods of a /22: no address twice; beside them an ADD takes no longer than where
// nobody is, and a full range is told, by ADD and by STATUS.
func TestPrivilegedIPAMThousand(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	section := map[string]any{"subnet": "10.0.0.0/22"}
	conf := ipamConf(node, "culvert-ipam", "1.1.0", section, nil)
	empty := ipamConf(emptied(t, node), "culvert-ipam", "1.1.0", section, nil)
	const size, pairs = 1021, 100
	seen := map[string]bool{}
	var early, late []time.Duration
	add := func(i int, conf map[string]any) (string, time.Duration) {
		start := time.Now()
		got, err := adds(node, conf, fmt.Sprint("pod", i))
		if err != nil {
			t.Fatal(err)
		}
		return got, time.Since(start)
	}
	for i := range size {
		got, took := add(i, conf)
		if seen[got] {
			t.Fatalf("ADD %d: %s again", i, got)
		}
		seen[got] = true
		if i >= size-pairs { // one beside the other, whatever else the machine does
			late = append(late, took)
			_, took = add(i, empty)
			early = append(early, took)
		}
		if i == size-2 {
			if _, err := node.Exec("STATUS", nil, conf); err != nil {
				t.Errorf("STATUS with one left: %v", err)
			}
		}
	}
	few, many := median(early), median(late)
	t.Logf("ADD: median with a hundred pods %s, with a thousand %s", few, many)
	if !netns.Emulated() && many > few*3/2 {
		t.Errorf("ADD gets slower: %s, then %s", few, many)
	}
	if _, err := adds(node, conf, "more"); netns.Code(err) != 104 {
		t.Errorf("ADD to a full range: %v", err)
	}
	if _, err := node.Exec("STATUS", nil, conf); netns.Code(err) != 50 || !strings.Contains(err.Error(), "no address is left") {
		t.Errorf("STATUS of a full range: %v", err)
	}
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// L6, L8: fifty processes at once; nothing is written but rows.
func TestPrivilegedL6IPAMParallel(t *testing.T) {
	t.Parallel()
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	conf := ipamConf(node, "culvert-ipam", "1.1.0", map[string]any{"ranges": []list{{{"subnet": "10.3.0.0/26"}}, {{"subnet": "fd00:3::/64"}}}}, nil)
	got := make([]string, 50)
	must(t, parallel(len(got), func(i int) (err error) {
		got[i], err = adds(node, conf, fmt.Sprint("pod", i))
		return err
	}))
	seen := map[string]bool{}
	for _, pair := range got {
		for _, a := range strings.Fields(pair) {
			if seen[a] {
				t.Errorf("%s was given twice", a)
			}
			seen[a] = true
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d addresses", len(seen))
	}
	must(t, parallel(len(got), func(i int) error {
		_, err := node.Exec("CHECK", ipamEnv(fmt.Sprint("pod", i)), conf)
		return err
	}))
	must(t, parallel(len(got), func(i int) error {
		_, err := node.Exec("DEL", ipamEnv(fmt.Sprint("pod", i)), conf)
		return err
	}))
	if left := leasesOf(t, node); len(left) != 0 {
		t.Errorf("held after DEL: %v", left)
	}
	if _, err := os.Stat(node.DataDir); err == nil {
		t.Error("files were written")
	}
}

// leasesOf lists the addresses that are held, and by whom.
func leasesOf(t *testing.T, n *netns.Node) map[string]string {
	t.Helper()
	held := map[string]string{}
	for _, l := range rows(t, addressTable(t, n).Leases()) {
		if l.State == maps.AddressHeld {
			held[l.Addr.String()] = l.Container
		}
	}
	return held
}

// L7, P10: pods of culvert on culvert-ipam. When the pins and every program are gone the pods
// that live keep their addresses: their routes tell before anything is given. GC frees what
// nobody has.
func TestPrivilegedL7IPAMRebuilt(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	conf := map[string]any{"ipam": map[string]any{"type": "culvert-ipam", "ranges": []list{{{"subnet": node.PodRange(4).String()}}, {{"subnet": node.PodRange(6).String()}}}}}
	a, _ := serve(t, node, netns.PodSpec{Name: "a", Conf: conf})
	gone := node.Add(t, netns.PodSpec{Name: "gone", Conf: conf})
	before := leasesOf(t, node)
	if len(before) != 4 || before[a.V4.String()] != "a" || before[a.V6.String()] != "a" {
		t.Errorf("held: %v", before)
	}
	devices := []string{a.Host.Name, gone.Host.Name}
	if _, tcx := release(t, 6, 6); !tcx { // filters outlive their pins, and hold the tables
		devices = append(devices, "up0")
	}
	for _, dev := range devices {
		node.MustRun(t, "", "tc", "qdisc", "del", "dev", dev, "clsact")
	}
	must(t, os.RemoveAll(filepath.Join(node.PinPath, "v1")))

	b, _ := serve(t, node, netns.PodSpec{Name: "b", Conf: conf})
	held := leasesOf(t, node)
	for addr, who := range map[string]string{a.V4.String(): "a", a.V6.String(): "a", gone.V4.String(): "gone", b.V4.String(): "b", b.V6.String(): "b"} {
		if held[addr] != who {
			t.Errorf("%s is held by %q, want %s", addr, held[addr], who)
		}
	}
	if err := a.Check(); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	gcConf := node.Conf()
	gcConf["ipam"] = conf["ipam"]
	must(t, node.GC(gcConf, a, b))
	if held := leasesOf(t, node); len(held) != 4 || held[gone.V4.String()] != "" {
		t.Errorf("after GC: %v", held)
	}
	each(t, small, func(t *testing.T, proto string, v int) {
		ask(t, b.NS, call(proto, a.Addr(v), 80), want{server: "a"})
	})
}

// L9: an address that is asked for is given again at once, and is reachable by its new owner.
func TestPrivilegedL9IPAMReuse(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	conf := func() map[string]any {
		return map[string]any{
			"ipam": map[string]any{"type": "culvert-ipam", "subnet": node.PodRange(4).String()},
			"args": map[string]any{"cni": map[string]any{"ips": []string{"10.244.0.77"}}},
		}
	}
	for _, name := range []string{"first", "second"} {
		p, err := node.TryAdd(netns.PodSpec{Name: name, NS: netns.New(t, name), Conf: conf()})
		if err != nil {
			t.Fatal(err)
		}
		p.Serve(t, 80)
		start := time.Now()
		ask(t, c.Outside().NS, call("tcp", p.V4, 80), want{server: name})
		if took := time.Since(start); took > 200*time.Millisecond && !netns.Emulated() {
			t.Errorf("%s answers after %s", name, took)
		}
		p.Del(t)
	}
}
