// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/culvert-cni/culvert/maps"
)

// from_host stays as long as a row is there, whoever asks for it to go.
func TestPrivilegedHostHook(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node) {
		row := maps.Hostport{Port: 80, Proto: 6, PodPort: 80, Generation: 1}
		if err := n.d.Maps.Hostports.Claim(row); err != nil {
			t.Fatal(err)
		}
		var on int
		enable := func() error { on++; return nil }
		disable := func() error { on = 0; return nil }
		n.do(t, func() error {
			return errors.Join(n.d.AttachHost(true, enable), n.d.AttachHost(true, enable), n.d.CheckHost())
		})
		n.do(t, func() error { return n.d.DetachHost(disable) })
		if got := n.on(t, loIfindex, true); got != 1 || on != 2 {
			t.Errorf("with a row left: %d programs, enabled %d", got, on)
		}
		if err := n.d.Maps.Hostports.Delete(row.Key()); err != nil {
			t.Fatal(err)
		}
		n.do(t, func() error { return errors.Join(n.d.DetachHost(disable), n.d.DetachHost(nil)) })
		if got := n.on(t, loIfindex, true); got != 0 || on != 0 {
			t.Errorf("without: %d programs, enabled %d", got, on)
		}
	})
}

// S4 (CVE-2023-27595): another build takes over links and filters where they are, never
// detached and attached again, and touches no device
// that only looks like a pod's.
func TestPrivilegedS4UpgradeInPlace(t *testing.T) {
	for _, tc := range []struct {
		mode           AttachMode
		links, filters int
	}{{AttachClsact, 0, 7}, {AttachAuto, 5, 2}} {
		t.Run(string(tc.mode), func(t *testing.T) {
			n := newNode(t, tc.mode, tc.links > 0)
			tunnel := n.device(t, "tunnel0")
			const pod, stranger, vanished = 1001, 1002, 1003
			n.do(t, func() error {
				return errors.Join(n.d.AttachUplink(n.dev), n.d.AttachTunnel(tunnel), n.d.AttachHost(false, nil), n.d.AttachPod(pod))
			})
			for i := range uint64(3) {
				row := maps.Iface{Ifindex: pod + int(i), Generation: i + 1}
				if err := n.d.Maps.Ifaces.Put(row); err != nil {
					t.Fatal(err)
				}
			}
			n.fake.Gone = map[int]bool{vanished: true}
			n.fake.Attached = 0
			before := linkIDs(t, n.d)
			if err := n.d.Maps.Config.Put(maps.NodeConfig{Build: 1}); err != nil {
				t.Fatal(err)
			}
			n.do(t, func() error { ensure(t, n.d.opts); return nil })
			after := linkIDs(t, n.d)
			if len(before) != tc.links || len(after) != tc.links {
				t.Errorf("links %v, then %v, want %d", before, after, tc.links)
			}
			for name, was := range before {
				now := after[name]
				if now.ID != was.ID {
					t.Errorf("%s was attached anew", name)
				}
				if a, _ := parseLinkName(name); now.Program != programID(t, n.d, a.hook.program) || now.Program == was.Program {
					t.Errorf("%s runs %d, before %d", name, now.Program, was.Program)
				}
			}
			if n.fake.Attached != tc.filters || len(n.fake.Filters) != tc.filters || n.fake.Filters[FakeHook{stranger, false}] != "" {
				t.Errorf("%d filters replaced, want %d: %v", n.fake.Attached, tc.filters, n.fake.Filters)
			}
		})
	}
}

func linkIDs(t *testing.T, d *Datapath) map[string]link.Info {
	t.Helper()
	entries, err := os.ReadDir(d.dirs.links)
	if err != nil {
		t.Fatal(err)
	}
	infos := map[string]link.Info{}
	for _, e := range entries {
		if e.IsDir() { // the mark of a filter
			continue
		}
		l, err := link.LoadPinnedLink(d.dirs.links+"/"+e.Name(), nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := l.Info()
		if err != nil {
			t.Fatal(err)
		}
		infos[e.Name()] = *info
		l.Close()
	}
	return infos
}
