// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// L1, X3: killed behind another plugin, a verb leaves that plugin's veth whole, and on it
// nothing that ADD, DEL or GC does not take off.
func TestPrivilegedL1ChainedKilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.node.Chain, b.traced.Chain = netns.AfterPtP, netns.AfterPtP
	every := 14
	switch {
	case full():
		every = 1
	case netns.Emulated():
		every = 60
	}
	verbs := map[string]func(p *netns.Pod) error{
		"ADD": func(p *netns.Pod) error { return errors.Join(p.TryDelOurs(), p.On(b.traced).Ours("ADD")) },
		"DEL": func(p *netns.Pod) error { return p.On(b.traced).TryDelOurs() },
		"GC":  func(*netns.Pod) error { return b.gcOurs(b.traced) },
	}
	var f faults
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			b.T = t
			points, err := b.chained(0, 0, verb)
			if err != nil {
				t.Fatalf("not killed: %v", err)
			}
			f.points += len(points)
			for at := 1 + os.Getpid()%every; at <= len(points); at += every {
				f.kills++
				if killed, err := b.chained(at, at/every%3, verb); err != nil {
					f.leaks++
					t.Errorf("killed after point %d of %d (%s): %v", at, len(points), last(killed), err)
					b.restore()
				}
			}
		})
	}
	b.T = t
	count(t, f)
}

// chained kills a verb about a pod of another plugin's and recovers in one of three ways.
func (b *bed) chained(at, how int, verb func(*netns.Pod) error) ([]string, error) {
	b.Helper()
	a := b.place("a")
	defer a.vanish()
	p, err := b.node.TryAdd(b.spec(a))
	if err == nil {
		err = p.TryDelOurs()
	}
	if err != nil {
		b.Fatalf("prepare: %v", err)
	}
	bare := look(b.T, b.node, a.NS)
	if err := p.Ours("ADD"); err != nil {
		b.Fatalf("prepare: %v", err)
	}
	report, err := b.killAt(at, func() error { return verb(p) })
	if err != nil {
		return report.Points, err
	}
	switch how {
	case 0:
		err = errors.Join(p.Ours("ADD"), b.works(p), p.TryDelOurs())
	case 1:
		err = p.TryDelOurs()
	case 2:
		err = b.gcOurs(b.node)
	}
	if err == nil {
		if left := bare.left(look(b.T, b.node, a.NS)); len(left) > 0 {
			err = fmt.Errorf("on the other plugin's veth:\n\t%s", strings.Join(left, "\n\t"))
		}
	}
	err = errors.Join(err, p.Ours("ADD"), b.works(p), p.TryDel(nil))
	return report.Points, errors.Join(err, b.same("after ADD, DEL"))
}

// gcOurs is GC of culvert in a list, where the addresses are not its own.
func (b *bed) gcOurs(n *netns.Node) error {
	conf := n.Conf()
	delete(conf, "ipam")
	return n.GC(conf)
}
