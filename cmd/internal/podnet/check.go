// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// check is one look at an attachment; it changes nothing.
type check struct {
	*Deps
	Spec
	prev *current.Result
	row  maps.Iface
	pod  *netdev.Handle
}

// Check verifies that what Setup made is there: the veth pair and its MACs, addresses,
// routes, rows, programs and limits. prev is the result of the whole plugin chain; what
// plugins behind us add or move (sbr: routes to another table) is none of its business.
func Check(d *Deps, spec Spec, prev *current.Result) error {
	rows, err := d.rowsOf(spec.Owner)
	if err != nil {
		return err
	}
	if len(rows) != 1 {
		return fmt.Errorf("check ifaces: %d rows of %s", len(rows), spec.Owner)
	}
	pod, err := netdev.OpenIn(spec.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	if spec.Uplinks, err = d.withoutPods(spec.Uplinks); err != nil {
		return err
	}
	c := &check{d, spec, prev, rows[0], pod}
	for _, part := range c.parts() {
		if err := part(); err != nil {
			return err
		}
	}
	if err := d.Datapath.CheckPod(c.row.Ifindex); err != nil {
		return err
	}
	return c.uplinks()
}

// parts is what there is to look at. Chained, the interface itself is for its own plugin.
func (c *check) parts() []func() error {
	if c.Prev != nil {
		return []func() error{c.chainedVeth, c.rows, c.limits, c.hostports, c.ranges, c.masquerade}
	}
	return []func() error{c.veth, c.rows, c.hostSide, c.forwarding, c.podSide, c.limits, c.hostports, c.ranges, c.masquerade}
}

// veth checks the pair and that its ends are each other's.
func (c *check) veth() error {
	host, err := c.Node.LinkNamed(HostName(c.Owner))
	if err != nil {
		return fmt.Errorf("check veth: %w", err)
	}
	pod, err := c.pod.LinkNamed(c.IfName)
	switch {
	case err != nil:
		return fmt.Errorf("check veth: %w", err)
	case host.Index != c.row.Ifindex:
		return fmt.Errorf("check veth: %s has index %d, its row %d", host.Name, host.Index, c.row.Ifindex)
	case host.PeerIndex != pod.Index || pod.PeerIndex != host.Index:
		return fmt.Errorf("check veth: %s is not the other end of %s", c.IfName, host.Name)
	case !host.Up || !pod.Up:
		return fmt.Errorf("check veth: %s or %s is down", host.Name, pod.Name)
	case c.row.Netns != c.Netns.Inode:
		return fmt.Errorf("check veth: ADD was for another network namespace than %s", c.Netns.Path)
	}
	for _, addr := range c.row.Addrs {
		row, err := c.Datapath.Maps.Pods.Get(addr)
		if err != nil {
			return fmt.Errorf("check rows: %w", err)
		}
		if err := errors.Join(sameMAC(host, row.HostMAC), sameMAC(pod, row.MAC)); err != nil {
			return err
		}
	}
	return nil
}

func sameMAC(l netdev.Link, want net.HardwareAddr) error {
	if bytes.Equal(l.MAC, want) {
		return nil
	}
	return fmt.Errorf("check veth: MAC of %s is %s, ADD gave it %s", l.Name, l.MAC, want)
}

// rows checks that every address that the result tells is led to the pod.
func (c *check) rows() error {
	for _, addr := range c.row.Addrs {
		row, err := c.Datapath.Maps.Pods.Get(addr)
		if err != nil {
			return fmt.Errorf("check rows: %w", err)
		}
		if row.Generation != c.row.Generation || row.Ifindex != c.row.Ifindex {
			return fmt.Errorf("check rows: %s is led to another pod", addr)
		}
	}
	for _, ip := range c.prev.IPs {
		if ip.Interface != nil && !c.isPod(*ip.Interface) {
			continue // of another plugin's interface
		}
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		if c.Prev != nil && !canBePods(addr.Unmap()) {
			continue
		}
		if !slices.Contains(c.row.Addrs, addr.Unmap()) {
			return fmt.Errorf("check rows: %s of prevResult is not the pod's", addr.Unmap())
		}
	}
	return nil
}

func (c *check) isPod(i int) bool {
	if c.Prev != nil {
		return ofInterface(c.Prev, i, c.IfName)
	}
	return i >= 0 && i < len(c.prev.Interfaces) && c.prev.Interfaces[i].Name == c.IfName && c.prev.Interfaces[i].Sandbox != ""
}

func (c *check) hostSide() error {
	routes, err := c.Node.Routes(c.row.Ifindex)
	if err != nil {
		return err
	}
	for _, addr := range c.row.Addrs {
		if !hasRoute(routes, hostRoute(addr)) {
			return fmt.Errorf("check routes: the node has no route to %s by %s", addr, c.row.HostIfName)
		}
	}
	return nil
}

// forwarding is what somebody may have switched off since: without it nothing goes from the
// pod to the outside, nor back.
func (c *check) forwarding() error {
	for _, v6 := range []bool{false, true} {
		if !slices.ContainsFunc(c.row.Addrs, func(a netip.Addr) bool { return a.Is6() == v6 }) {
			continue
		}
		on, err := c.Node.Forwards(!v6, v6)
		if err == nil && on {
			device := netdev.ForwardingOf(c.row.HostIfName, v6)
			var now string
			if now, err = device.Get(); err == nil {
				on = now == device.Value
			}
		}
		if err != nil {
			return err
		}
		if !on {
			return fmt.Errorf("check sysctls: forwarding is switched off, on the node or on %s", c.row.HostIfName)
		}
	}
	return nil
}

func (c *check) podSide() error {
	link, err := c.pod.LinkNamed(c.IfName)
	if err != nil {
		return err
	}
	addrs, err := c.pod.Addresses(link.Index)
	if err != nil {
		return err
	}
	for _, addr := range c.row.Addrs {
		if !slices.Contains(addrs, addr) {
			return fmt.Errorf("check addresses: %s is not on %s", addr, c.IfName)
		}
	}
	routes, err := c.pod.Routes(link.Index)
	if err != nil {
		return err
	}
	for _, r := range c.wantedRoutes() {
		if !hasRoute(routes, r) {
			return fmt.Errorf("check routes: the pod has no route to %s by %s", r.Dst, c.IfName)
		}
	}
	return nil
}

// wantedRoutes are those of the result that go by this interface, as far as one can
// tell: by an address of the pod's families.
func (c *check) wantedRoutes() []netdev.Route {
	var l layout
	for _, ip := range c.prev.IPs {
		_ = l.addAddress(ip)
	}
	for _, r := range c.prev.Routes {
		if r != nil {
			_ = l.addRoute(r)
		}
	}
	return l.routes
}

func hasRoute(routes []netdev.Route, want netdev.Route) bool {
	return slices.ContainsFunc(routes, func(r netdev.Route) bool {
		return r.Dst == want.Dst && (!want.Gateway.IsValid() || r.Gateway == want.Gateway)
	})
}

// hostports checks the rows of the hostPorts that the runtime still asks for.
func (c *check) hostports() error {
	s := setup{Deps: c.Deps, Spec: c.Spec, generation: c.row.Generation, layout: &layout{}}
	for _, addr := range c.row.Addrs {
		s.layout.addrs = append(s.layout.addrs, address{addr: addr})
	}
	rows := s.hostportRows()
	for _, want := range rows {
		row, err := c.Datapath.Maps.Hostports.Get(want.Addr, want.Port, want.Proto)
		if err != nil {
			return fmt.Errorf("check hostports: %w", err)
		}
		if row.Generation != want.Generation || row.PodPort != want.PodPort {
			return fmt.Errorf("check hostports: %s leads elsewhere", want.Key())
		}
	}
	if len(rows) > 0 {
		return c.Datapath.CheckHost()
	}
	return nil
}

func (c *check) uplinks() error {
	for _, l := range c.Uplinks.Links {
		if err := c.Datapath.CheckUplink(l.Index); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}
