// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	culvert "github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

const hostPort, port = 8080, 80

// bed is a node with an outside, on which verbs are killed.
type bed struct {
	*testing.T
	net    *netns.Net
	node   *netns.Node
	traced *netns.Node
	base   snapshot       // of the node without pods
	ipam   map[string]any // the section of the configuration; nil: host-local
}

// place is a namespace for a pod, with a server in it.
type place struct {
	*netns.NS
	server *netns.Server
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return makeBed(t, func(*netns.Node) map[string]any { return nil })
}

// newOwnBed is one whose pods have their addresses of culvert-ipam, in the same process.
func newOwnBed(t *testing.T) *bed {
	t.Helper()
	return makeBed(t, func(n *netns.Node) map[string]any {
		var ranges [][]map[string]any
		for _, v := range []int{4, 6} {
			ranges = append(ranges, []map[string]any{{"subnet": n.PodRange(v).String()}})
		}
		return map[string]any{"type": "culvert-ipam", "ranges": ranges}
	})
}

func makeBed(t *testing.T, ipam func(*netns.Node) map[string]any) *bed {
	t.Helper()
	b := &bed{T: t, net: netns.Wire(t, netns.Layout{})}
	b.node = b.net.Nodes[0]
	b.ipam = ipam(b.node)
	// One family without a default route: then hostPorts add one that denies.
	b.node.IP(t, "route del default via fd00:10::1")
	b.traced = traced(t, b.node)
	b.net.Outside().Serve(t, port)
	a := b.place("a")
	defer a.vanish()
	p, err := b.node.TryAdd(b.spec(a))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.TryDel(nil), b.collect()); err != nil {
		t.Fatal(err)
	}
	b.base = look(t, b.node)
	return b
}

func (b *bed) place(name string) *place {
	b.Helper()
	ns, err := netns.TryNew(name)
	if err != nil {
		b.Fatal(err)
	}
	s, err := ns.TryServe(port)
	if err != nil {
		b.Fatal(err)
	}
	return &place{ns, s}
}

// vanish is the end of the namespace. Idempotent.
func (p *place) vanish() {
	p.server.Close()
	p.Close()
}

// spec is a pod with everything that an ADD can ask for.
func (b *bed) spec(p *place) netns.PodSpec {
	return netns.PodSpec{
		Name: p.Name, NS: p.NS, Ports: netns.Both(hostPort, port), Conf: b.extra(),
		Bandwidth: &netns.Bandwidth{IngressRate: 1e8, EgressRate: 1e8},
	}
}

func (b *bed) extra() map[string]any {
	conf := map[string]any{
		"ipMasq":    true,
		"hostPorts": map[string]any{"excludeCIDRs": []string{"10.96.0.0/12"}},
		"logFile":   filepath.Join(b.node.DataDir, "..", "log"),
	}
	if b.ipam != nil {
		conf["ipam"] = b.ipam
	}
	return conf
}

// collect runs GC with a list.
func (b *bed) collect(valid ...*netns.Pod) error { return b.gc(b.node, valid...) }

func (b *bed) gc(n *netns.Node, valid ...*netns.Pod) error {
	conf := n.Conf()
	for k, v := range b.extra() {
		conf[k] = v
	}
	if err := n.GC(conf, valid...); err != nil {
		return fmt.Errorf("GC: %w", err)
	}
	return nil
}

// works says what does not of a pod.
func (b *bed) works(p *netns.Pod) error {
	out := b.net.Outside()
	up := b.node.Uplinks[0]
	ask := func(from *netns.NS, proto string, to netip.Addr, port uint16, server string) error {
		return netns.Poll(func() error {
			r, err := from.Ask(netns.Call{Proto: proto, To: netip.AddrPortFrom(to, port)})
			if err == nil && r.Server != server {
				err = fmt.Errorf("%s:%d was answered by %s, not %s", to, port, r.Server, server)
			}
			return err
		})
	}
	return errors.Join(
		p.Check(),
		ask(out.NS, "tcp", up.V4, p.HostPort, p.Name),
		ask(out.NS, "udp", up.V6, p.HostPort, p.Name),
		ask(b.node.NS, "tcp", netip.MustParseAddr("127.0.0.1"), p.HostPort, p.Name),
		ask(p.NS, "tcp", out.V4, port, out.Name),
	)
}

// left says what is left when there should be no pod. Namespaces end a while after they
// are closed.
func (b *bed) left(when string) error {
	return netns.Poll(func() error {
		return b.compare(when, func(s snapshot) []string {
			// What a load has not brought to its end, the next load does.
			return slices.DeleteFunc(b.base.left(s), func(line string) bool { return strings.HasSuffix(line, "_next") })
		})
	})
}

// same is left, and that nothing is missing either: an ADD has loaded everything.
func (b *bed) same(when string) error {
	return netns.Poll(func() error {
		return errors.Join(b.compare(when, b.base.left), b.compare(when, b.base.missing))
	})
}

func (b *bed) compare(when string, how func(snapshot) []string) error {
	if list := how(look(b.T, b.node)); len(list) > 0 {
		return fmt.Errorf("%s:\n\t%s", when, strings.Join(list, "\n\t"))
	}
	return nil
}

// leases says whether the IPAM plugin holds the addresses of these pods and no others.
func (b *bed) leases(pods ...*netns.Pod) error {
	var want []string
	for _, p := range pods {
		want = append(want, p.V4.String(), p.V6.String())
	}
	got, err := b.held()
	slices.Sort(want)
	slices.Sort(got)
	if err == nil && !slices.Equal(want, got) {
		err = fmt.Errorf("held are %v, the pods have %v", got, want)
	}
	return err
}

func (b *bed) held() (list []string, err error) {
	if b.ipam == nil {
		files, err := os.ReadDir(filepath.Join(b.node.DataDir, netns.Network))
		for _, f := range files {
			if _, err := netip.ParseAddr(f.Name()); err == nil {
				list = append(list, f.Name())
			}
		}
		return list, err
	}
	table, err := culvert.OpenAddresses(filepath.Join(b.node.PinPath, "v1", "maps"))
	if err != nil {
		return nil, err
	}
	defer table.Close()
	for l, err := range table.Leases() {
		if err != nil {
			return nil, err
		}
		if l.State == culvert.AddressHeld {
			list = append(list, l.Addr.String())
		}
	}
	return list, nil
}

// unload leaves the node as it is before its first pod.
func (b *bed) unload() {
	b.Helper()
	if err := os.RemoveAll(filepath.Join(b.node.PinPath, "v1")); err != nil {
		b.Fatal(err)
	}
}

// otherBuild makes the next verb replace the programs.
func (b *bed) otherBuild() {
	b.Helper()
	set, err := culvert.Open(filepath.Join(b.node.PinPath, "v1", "maps"))
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	config, err := set.Config.Get()
	if err == nil {
		config.Build++
		err = set.Config.Put(config)
	}
	if err != nil {
		b.Fatal(err)
	}
}
