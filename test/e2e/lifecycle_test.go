// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// L1, the errors: an ADD that fails leaves nothing (wire looks), and the next
// one of the same key works.
func TestPrivilegedL1Errors(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	for _, tc := range []struct {
		name    string
		prepare string // in the pod's namespace
		conf    map[string]any
	}{
		{"IPAMFails", "", map[string]any{"ipam": map[string]any{"type": "static"}}},
		{"NameTaken", "link add eth0 type veth peer name foreign", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netns.New(t, tc.name)
			if tc.prepare != "" {
				ns.IP(t, tc.prepare)
			}
			spec := netns.PodSpec{Name: tc.name, NS: ns, Conf: tc.conf, Ports: netns.Both(8080, 80)}
			if _, err := node.TryAdd(spec); netns.Code(err) == 0 {
				t.Errorf("ADD: want a CNI error, got %v", err)
			}
			c.checkEmpty(t, node)
			if tc.prepare != "" {
				if _, ok := devices(t, ns)["eth0"]; !ok {
					t.Error("the foreign interface is gone")
				}
				ns.IP(t, "link del eth0")
			}
			spec.Conf = nil
			p := node.Add(t, spec)
			p.Serve(t, 80)
			ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: tc.name})
			p.Del(t)
		})
	}
}

// L3: DEL succeeds without netns or prevResult, for an unknown container, twice
// and in parallel, and always calls the IPAM plugin (wire looks).
func TestPrivilegedL3Del(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	for _, tc := range []struct {
		name string
		del  func(p *netns.Pod) error
	}{
		{"Twice", func(p *netns.Pod) error { return errors.Join(p.TryDel(nil), p.TryDel(nil)) }},
		{"NoNetns", func(p *netns.Pod) error { return p.TryDel(map[string]string{"CNI_NETNS": ""}) }},
		{"NetnsGone", func(p *netns.Pod) error {
			path := p.Path()
			p.Vanish()
			return p.TryDel(map[string]string{"CNI_NETNS": path})
		}},
		{"NoPrevResult", func(p *netns.Pod) error { return p.TryDelBare() }},
		{"Parallel", func(p *netns.Pod) error {
			return parallel(4, func(int) error { return p.TryDel(nil) })
		}},
		{"UnknownFirst", func(p *netns.Pod) error {
			return errors.Join(p.TryDel(map[string]string{"CNI_CONTAINERID": "never-seen"}), p.TryDel(nil))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := node.TryAdd(netns.PodSpec{Name: tc.name, NS: netns.New(t, tc.name), Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e7, EgressRate: 1e7}})
			if err != nil {
				t.Fatal(err)
			}
			c.unexpected(t, node)
			if err := tc.del(p); err != nil {
				t.Errorf("DEL: %v", err)
			}
			c.checkEmpty(t, node)
		})
	}
}

// L5: two interfaces of one container are independent, whichever goes first.
func TestPrivilegedL5TwoInterfaces(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	for _, goes := range []string{"eth0", "eth1"} {
		t.Run(goes+"Goes", func(t *testing.T) {
			ns := netns.New(t, "two")
			ns.Serve(t, 80)
			var gone, stays *netns.Pod
			for i, ifname := range []string{"eth0", "eth1"} {
				p := node.Add(t, netns.PodSpec{Name: "two", NS: ns, IfName: ifname, Ports: netns.Both(8080+i, 80)})
				if ifname == goes {
					gone = p
				} else {
					stays = p
				}
			}
			port := map[*netns.Pod]uint16{gone: 8081, stays: 8080}
			if goes == "eth0" {
				port = map[*netns.Pod]uint16{gone: 8080, stays: 8081}
			}
			reach := func(t *testing.T, p *netns.Pod, proto string, v int) {
				ask(t, c.Outside().NS, call(proto, p.Addr(v), 80), want{server: "two"})
				ask(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(v), port[p]), want{server: "two"})
			}
			each(t, small, func(t *testing.T, proto string, v int) {
				reach(t, gone, proto, v)
				reach(t, stays, proto, v)
			})
			gone.Del(t)
			if _, ok := devices(t, ns)[stays.IfName]; !ok {
				t.Fatalf("DEL of %s took %s", gone.IfName, stays.IfName)
			}
			each(t, small, func(t *testing.T, proto string, v int) {
				reach(t, stays, proto, v)
				refuse(t, c.Outside().NS, call(proto, node.Uplinks[0].Addr(v), port[gone]))
			})
			if err := stays.Check(); err != nil {
				t.Errorf("CHECK of %s: %v", stays.IfName, err)
			}
		})
	}
}

// L6: 50 parallel ADDs, CHECKs and DELs.
func TestPrivilegedL6Parallel(t *testing.T) {
	t.Parallel()
	n := 50
	if netns.Emulated() {
		n = 16
	}
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	var spaces []*netns.NS
	for i := range n {
		spaces = append(spaces, netns.New(t, fmt.Sprintf("p%d", i)))
		spaces[i].Serve(t, 80)
	}
	pods := make([]*netns.Pod, n)
	err := parallel(n, func(i int) (err error) {
		pods[i], err = node.TryAdd(netns.PodSpec{
			Name: spaces[i].Name, NS: spaces[i], Ports: netns.Both(8000+i, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e9},
		})
		return err
	})
	if err != nil {
		t.Errorf("ADD: %v", err)
	}
	pods = slices.DeleteFunc(pods, func(p *netns.Pod) bool { return p == nil })
	for i, p := range pods {
		ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].Addr(families[i%2]), p.HostPort), want{server: p.Name})
	}
	if err := parallel(len(pods), func(i int) error { return pods[i].Check() }); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	c.unexpected(t, node)
	if err := parallel(len(pods), func(i int) error { return pods[i].TryDel(nil) }); err != nil {
		t.Errorf("DEL: %v", err)
	}
	for _, dev := range []string{"all", "default", "up0"} {
		for _, family := range []string{"ipv4", "ipv6"} {
			if on := node.GetSysctl(t, "net/"+family+"/conf/"+dev+"/forwarding"); on != "1" {
				t.Errorf("net.%s.conf.%s.forwarding: want 1, got %s", family, dev, on)
			}
		}
	}
}

// parallel runs f(0) to f(n-1) side by side and joins their errors.
func parallel(n int, f func(int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
