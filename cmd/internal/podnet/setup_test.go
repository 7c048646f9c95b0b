// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// L1: whichever step of ADD fails, nothing of the steps before it is left.
func TestPrivilegedSetupUndone(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	broken := errors.New("broken")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		for n := range len((&setup{}).steps()) + 1 {
			ipam := &FakeIPAM{Result: ipamResult(t, `{"ips":[{"address":"10.244.0.2/24"},{"address":"fd00:244::2/64"}]}`)}
			d.IPAM = ipam
			s, err := newSetup(d, spec)
			if err != nil {
				return err
			}
			steps := append(s.steps()[:n:n], step{"break", func(context.Context) error { return broken }})
			after := "nothing"
			if n > 0 {
				after = steps[n-1].name
			}
			if err := s.run(context.Background(), steps); !errors.Is(err, broken) || strings.Contains(err.Error(), "undo") {
				t.Errorf("after %q: got %v, want the step's error alone", after, err)
			}
			if ipam.Adds != ipam.Dels {
				t.Errorf("after %q: IPAM plugin was told ADD %d times, DEL %d times", after, ipam.Adds, ipam.Dels)
			}
			nothingLeft(t, after, d, node, pod)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// L1: a runtime that stops waiting is as good as an error.
func TestPrivilegedSetupCancelled(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ipam := &FakeIPAM{Result: ipamResult(t, `{"ips":[{"address":"10.244.0.2/24"}]}`)}
		d.IPAM = ipam
		s, err := newSetup(d, spec)
		if err != nil {
			return err
		}
		steps := s.steps()
		steps[len(steps)-2].do = func(context.Context) error { cancel(); return nil }
		if err := s.run(ctx, steps); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if ipam.Dels != 1 {
			t.Error("addresses were not freed")
		}
		nothingLeft(t, "cancelling", d, node, pod)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func newDeps(t *testing.T, node *netns.Node, pod *netns.NS) (*Deps, Spec) {
	t.Helper()
	h, err := netdev.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	dp, err := loader.Ensure(loader.Options{PinPath: node.PinPath, Netlink: h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dp.Close() })
	ns, err := netdev.OpenNamespace(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	uplinks, err := h.Uplinks(nil, IsHostName)
	if err != nil || len(uplinks.Links) == 0 {
		t.Fatalf("uplinks: %+v, %v", uplinks, err)
	}
	spec := Spec{
		Owner: maps.Owner{Network: "net", Container: "c1", IfName: "eth0"}, Netns: ns, Uplinks: uplinks,
		Hostports: []Hostport{{Port: 8080, Proto: 6, PodPort: 80}}, Loopback: true,
		Ingress: Rate{Rate: 1e7}, Egress: Rate{Rate: 1e7},
		Exclude: prefixes("10.96.0.0/12"), NonMasquerade: prefixes("10.244.0.0/16", "fd00:244::/32"), Masquerade: true,
	}
	return &Deps{Node: h, Datapath: dp, PinPath: node.PinPath, Log: slog.New(slog.DiscardHandler)}, spec
}

func nothingLeft(t *testing.T, after string, d *Deps, node *netns.Node, pod *netns.NS) {
	t.Helper()
	if links, err := d.Node.LinksNamed(IsHostName); err != nil || len(links) > 0 {
		t.Errorf("after %q: devices %v, %v", after, links, err)
	}
	if out, _ := pod.Run("", "ip", "-o", "link"); strings.Contains(out, "eth0") {
		t.Errorf("after %q: the pod has an interface", after)
	}
	noRowsLeft(t, after, d, node)
}

func noRowsLeft(t *testing.T, after string, d *Deps, node *netns.Node) {
	t.Helper()
	m := d.Datapath.Maps
	ifaces, _ := maps.Collect(m.Ifaces.All())
	pods, _ := maps.Collect(m.Pods.All())
	ports, _ := maps.Collect(m.Hostports.All())
	limits, _ := maps.Collect(m.Limits.All())
	if left := describeCidrs(t, m.Nonmasq) + describeCidrs(t, m.Excluded); left != "" {
		t.Errorf("after %q: ranges are left: %s", after, left)
	}
	if n := len(ifaces) + len(pods) + len(ports) + len(limits); n > 0 {
		t.Errorf("after %q: %d rows are left", after, n)
	}
	if d.raised(acceptLocal) || d.raised(routeLocalnet) || node.GetSysctl(t, "net/ipv4/conf/lo/route_localnet") != "0" {
		t.Errorf("after %q: lo is open", after)
	}
	if d.Datapath.CheckHost() == nil {
		t.Errorf("after %q: lo has a program", after)
	}
}
