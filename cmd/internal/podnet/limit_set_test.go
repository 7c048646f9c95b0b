// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// limited runs a test on a node with a pod of two addresses that has no limits, on a
// thread that t.Fatal must not end.
func limited(t *testing.T, f func(d *Deps, spec Spec, i maps.Iface) error) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		d.IPAM = &FakeIPAM{Result: ipamResult(t, `{"ips":[{"address":"10.244.0.2/24"},{"address":"fd00:244::2/64"}]}`)}
		spec.Ingress, spec.Egress = Rate{}, Rate{}
		if _, err := Setup(context.Background(), d, spec); err != nil {
			return err
		}
		i, err := d.Datapath.Maps.Ifaces.Find(spec.Owner)
		if err != nil {
			return err
		}
		return errors.Join(f(d, spec, i), Teardown(context.Background(), d, spec.Owner))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func rates(ingress, egress int64) (c LimitChange) {
	if ingress >= 0 {
		c.Ingress = &Rate{Rate: uint64(ingress)}
	}
	if egress >= 0 {
		c.Egress = &Rate{Rate: uint64(egress)}
	}
	return c
}

// held says what holds: rate of row and shaper a direction, and the flags of all rows.
func held(d *Deps, i maps.Iface) (string, error) {
	p, err := openLive(d, i)
	if err != nil {
		return "", err
	}
	defer p.close()
	var s string
	for _, dir := range []maps.Direction{maps.Ingress, maps.Egress} {
		h, index := p.Node, p.row.Ifindex
		if dir == maps.Egress {
			h, index = p.pod, p.podIndex
		}
		now, err := h.ReadShaper(index)
		if err != nil {
			return "", err
		}
		row, err := d.Datapath.Maps.Limits.Get(p.row.Ifindex, dir)
		switch {
		case errors.Is(err, maps.ErrNotFound):
			s += fmt.Sprintf("no row/%d ", now.Rate*8)
		case err != nil:
			return "", err
		default:
			s += fmt.Sprintf("%d/%d ", row.Rate, now.Rate*8)
		}
		if err == nil && sameLimit(row, now) != nil {
			s += "not the same "
		}
	}
	flags := p.row.Flags & (maps.PodLimitIngress | maps.PodLimitEgress)
	for _, addr := range p.row.Addrs {
		row, err := d.Datapath.Maps.Pods.Get(addr)
		if err != nil || row.Flags != p.row.Flags {
			return "", fmt.Errorf("flags of %s are %s, those of the iface %s, %w", addr, row.Flags, p.row.Flags, err)
		}
	}
	return s + flags.String(), nil
}

func TestPrivilegedSetLimits(t *testing.T) {
	limited(t, func(d *Deps, _ Spec, i maps.Iface) error {
		for _, tt := range []struct {
			ingress, egress int64
			want            string
		}{
			{-1, -1, "no row/0 no row/0 "},
			{0, 0, "no row/0 no row/0 "},
			{20e6, -1, "20000000/20000000 no row/0 limit_ingress"},
			{-1, 10e6, "20000000/20000000 10000000/10000000 limit_ingress,limit_egress"},
			{-1, 1e9, "20000000/20000000 1000000000/1000000000 limit_ingress,limit_egress"},
			{1000, 1e6, "1000/1000 1000000/1000000 limit_ingress,limit_egress"},
			{0, -1, "0/0 1000000/1000000 limit_egress"},
			{-1, 0, "0/0 0/0 "},
			{0, 0, "0/0 0/0 "},
			{1e15, 8000, "1000000000000000/1000000000000000 8000/8000 limit_ingress,limit_egress"},
		} {
			for range 2 { // idempotent
				if err := SetLimits(d, i, rates(tt.ingress, tt.egress)); err != nil {
					return err
				}
				if got, err := held(d, i); err != nil || got != tt.want {
					t.Errorf("%d, %d: got %q, %v, want %q", tt.ingress, tt.egress, got, err, tt.want)
				}
			}
		}
		return nil
	})
}

// After an error in the second direction the first is what it was.
func TestPrivilegedSetLimitsUndone(t *testing.T) {
	limited(t, func(d *Deps, _ Spec, i maps.Iface) error {
		for _, before := range []LimitChange{rates(-1, -1), rates(5e6, -1), rates(5e6, 7e6), rates(0, 0)} {
			if err := SetLimits(d, i, before); err != nil {
				return err
			}
			want, err := held(d, i)
			if err != nil {
				return err
			}
			for _, change := range []LimitChange{rates(1e6, 1e6), rates(9e6, 9e6)} {
				p, err := openLive(d, i)
				if err != nil {
					return err
				}
				p.podIndex = 4711
				if err := p.set(change); !errors.Is(err, ErrWentAway) || !errors.Is(err, unix.ENODEV) {
					t.Errorf("got %v", err)
				}
				p.close()
				if got, err := held(d, i); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		}
		return nil
	})
}

func TestPrivilegedSetLimitsOfNone(t *testing.T) {
	limited(t, func(d *Deps, spec Spec, i maps.Iface) error {
		change := rates(1e6, 1e6)
		m := d.Datapath.Maps
		other := netns.New(t, "other")
		for _, tt := range []struct {
			name string
			row  func(maps.Iface) maps.Iface
			want error
		}{
			{"another namespace", func(i maps.Iface) maps.Iface { i.NetnsPath = other.Path(); return i }, ErrNotReachable},
			{"no namespace", func(i maps.Iface) maps.Iface { i.NetnsPath = "/no/such"; return i }, ErrNotReachable},
			{"a file", func(i maps.Iface) maps.Iface { i.NetnsPath = "/dev/null"; return i }, ErrNotReachable},
			{"another device", func(i maps.Iface) maps.Iface { i.HostIfName = "cv0"; return i }, ErrNotReachable},
			{"half an ADD", func(i maps.Iface) maps.Iface { i.Addrs = nil; return i }, ErrNotReachable},
			{"added anew", func(i maps.Iface) maps.Iface { i.Generation++; return i }, ErrWentAway},
		} {
			if err := m.Ifaces.Put(tt.row(i)); err != nil {
				return err
			}
			if err := SetLimits(d, i, change); !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v", tt.name, err)
			}
			if rows, err := maps.Collect(m.Limits.All()); len(rows) > 0 || err != nil {
				t.Errorf("%s: rows %v, %v", tt.name, rows, err)
			}
		}
		if err := m.Ifaces.Put(i); err != nil {
			return err
		}
		down, err := openLive(d, i)
		if err != nil {
			return err
		}
		defer down.close()
		if err := Teardown(context.Background(), d, spec.Owner); err != nil {
			return err
		}
		for _, err := range []error{down.set(change), SetLimits(d, i, change)} {
			if !errors.Is(err, ErrWentAway) {
				t.Errorf("a pod that went: got %v", err)
			}
		}
		if rows, err := maps.Collect(m.Limits.All()); len(rows) > 0 || err != nil {
			t.Errorf("a pod that went: rows %v, %v", rows, err)
		}
		return nil
	})
}

// Whoever deletes the pod meanwhile, nothing of it comes back.
func TestPrivilegedSetLimitsBesideTeardown(t *testing.T) {
	limited(t, func(d *Deps, spec Spec, _ maps.Iface) error {
		node, err := netdev.OpenNamespace("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer node.Close()
		for range 5 {
			if _, err := Setup(context.Background(), d, spec); err != nil {
				return err
			}
			i, err := d.Datapath.Maps.Ifaces.Find(spec.Owner)
			if err != nil {
				return err
			}
			done := make(chan error)
			go func() { done <- node.Do(func() error { return setWhileThere(*d, i) }) }()
			err = errors.Join(Teardown(context.Background(), d, spec.Owner), <-done)
			if err != nil {
				return err
			}
			m := d.Datapath.Maps
			limits, _ := maps.Collect(m.Limits.All())
			pods, _ := maps.Collect(m.Pods.All())
			ifaces, _ := maps.Collect(m.Ifaces.All())
			if len(limits)+len(pods)+len(ifaces) > 0 {
				t.Errorf("left: %v, %v, %v", limits, pods, ifaces)
			}
		}
		return nil
	})
}

func setWhileThere(d Deps, i maps.Iface) error {
	h, err := netdev.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	d.Node = h
	for rate := int64(1e6); ; rate += 1e6 {
		err := SetLimits(&d, i, rates(rate, rate))
		if errors.Is(err, ErrWentAway) || errors.Is(err, ErrNotReachable) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
