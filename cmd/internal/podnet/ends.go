// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
)

func (s *setup) configureHost(context.Context) error { return s.Node.Configure(s.hostEnd()) }

// configurePod works in the pod's namespace. It leaves lo alone: the runtime sets that
// up at the same time.
func (s *setup) configurePod(context.Context) error {
	pod, err := netdev.OpenIn(s.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	end := s.podEnd()
	err = pod.Configure(end)
	if !errors.Is(err, unix.EACCES) || !s.layout.has(true) {
		return s.awaitPod(pod, err)
	}
	// Some runtimes switch IPv6 off in a new namespace. Who gives the pod an IPv6
	// address wants it on this interface.
	enable := netdev.Sysctl{Path: "net/ipv6/conf/" + s.IfName + "/disable_ipv6", Value: "0"}
	if err := s.Netns.Do(enable.Set); err != nil {
		return err
	}
	return s.awaitPod(pod, pod.Configure(end))
}

// awaitPod makes the pod's interface one that can be used when ADD returns.
func (s *setup) awaitPod(pod *netdev.Handle, err error) error {
	if err != nil {
		return err
	}
	return pod.AwaitReady(s.link.PeerIndex)
}

// awaitHost comes last: the host side has its carrier from the pod's.
func (s *setup) awaitHost(context.Context) error { return s.Node.AwaitReady(s.link.Index) }

// hostEnd is the node's side of the veth.
func (s *setup) hostEnd() netdev.End {
	e := netdev.End{
		Index: s.link.Index, Name: s.link.Name, Alias: witness{s.iface}.String(), Shaper: s.toPod,
		Sysctls: hostSysctls(s.link.Name, s.layout.has(true)),
	}
	if s.layout.has(true) {
		// What the node itself says to the pod comes from here if the node has no
		// global address; routers have to have one on a link.
		e.Addrs = []netdev.Address{{Prefix: netip.PrefixFrom(gateway6, 64), LinkScope: true}}
	}
	for _, addr := range s.layout.list() {
		e.Neighbours = append(e.Neighbours, netdev.Neighbour{Addr: addr, MAC: s.mac})
		e.Routes = append(e.Routes, hostRoute(addr))
	}
	return e
}

// hostRoute leads the node to a pod. Its protocol number tells whose it is.
func hostRoute(addr netip.Addr) netdev.Route {
	return netdev.Route{
		Dst:      netip.PrefixFrom(addr, addr.BitLen()),
		Scope:    unix.RT_SCOPE_LINK,
		Protocol: netdev.RouteProtocol,
	}
}

// podEnd is the pod's interface.
func (s *setup) podEnd() netdev.End {
	e := netdev.End{Index: s.link.PeerIndex, Name: s.IfName, Shaper: s.fromPod, Routes: s.layout.routes, Behind: true}
	for _, addr := range s.layout.list() {
		e.Addrs = append(e.Addrs, netdev.Address{Prefix: netip.PrefixFrom(addr, addr.BitLen())})
	}
	for _, next := range s.layout.nexts {
		if s.layout.has(next.Is6()) {
			e.Neighbours = append(e.Neighbours, netdev.Neighbour{Addr: next, MAC: s.hostMAC})
		}
	}
	return e
}

// hostSysctls make the host side a router's port that believes nothing a pod says about
// routing. Without an automatic link-local address (mode 1) there is no duplicate
// address detection, and no address that differs from pod to pod.
func hostSysctls(name string, v6 bool) []netdev.Sysctl {
	v4dir, v6dir := "net/ipv4/conf/"+name+"/", "net/ipv6/conf/"+name+"/"
	list := []netdev.Sysctl{
		{Path: v4dir + "rp_filter", Value: "0"},
		{Path: v4dir + "send_redirects", Value: "0"},
		{Path: v4dir + "accept_redirects", Value: "0"},
		{Path: v6dir + "accept_ra", Value: "0", Optional: !v6},
		{Path: v6dir + "accept_redirects", Value: "0", Optional: !v6},
		{Path: v6dir + "addr_gen_mode", Value: "1", Optional: !v6},
	}
	if v6 {
		list = append(list, netdev.Sysctl{Path: v6dir + "disable_ipv6", Value: "0"})
	}
	return list
}
