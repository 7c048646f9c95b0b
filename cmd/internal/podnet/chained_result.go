// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
)

// What a result says of a container's interface. Plugins differ: the older ones list no
// interface, and of those with a policy engine many list the node's end alone.

func badPrev(name, why string) error { return netconf.Bad("prevResult", "interface "+name, why) }

// checkSandbox makes sure that the result is about that interface in that namespace, as far
// as it says.
func checkSandbox(prev *current.Result, name string, ns *netdev.Namespace) error {
	var other *current.Interface
	for _, i := range prev.Interfaces {
		if i == nil || i.Sandbox == "" {
			continue
		}
		other = i
		if i.Name == name && isSandbox(i.Sandbox, ns) {
			return nil
		}
	}
	switch {
	case other == nil:
		return nil
	case slices.ContainsFunc(prev.Interfaces, func(i *current.Interface) bool { return i != nil && i.Sandbox != "" && i.Name == name }):
		return badPrev(name, fmt.Sprintf("its sandbox is not the network namespace at %s", ns.Path))
	}
	return badPrev(name, fmt.Sprintf("there is no such one, but %s in %s", other.Name, other.Sandbox))
}

// isSandbox says whether the path names the namespace: one may have several.
func isSandbox(path string, ns *netdev.Namespace) bool {
	if path == ns.Path {
		return true
	}
	sandbox, err := netdev.OpenNamespace(path)
	if err != nil {
		return false
	}
	defer sandbox.Close()
	return sandbox.Inode == ns.Inode
}

// ofInterface says whether an address with that place among the interfaces is the named
// interface's: also where none is told to be the container's.
func ofInterface(prev *current.Result, place int, name string) bool {
	inside := func(i *current.Interface) bool { return i != nil && i.Sandbox != "" }
	if !slices.ContainsFunc(prev.Interfaces, inside) {
		return true
	}
	return place >= 0 && place < len(prev.Interfaces) && inside(prev.Interfaces[place]) && prev.Interfaces[place].Name == name
}

// canBePods leaves out what no caller can go by.
func canBePods(a netip.Addr) bool {
	nobodys := !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast()
	return !nobodys && (a.Is4() || !a.IsLinkLocalUnicast())
}

// readAddresses takes the interface's addresses from the result.
func (s *setup) readAddresses(context.Context) error {
	s.layout = &layout{}
	for _, ip := range s.Prev.IPs {
		if ip == nil || ip.Interface != nil && !ofInterface(s.Prev, *ip.Interface, s.IfName) {
			continue
		}
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		addr = addr.Unmap()
		if canBePods(addr) && !slices.Contains(s.layout.list(), addr) {
			s.layout.addrs = append(s.layout.addrs, address{addr: addr})
		}
	}
	switch n := len(s.layout.addrs); {
	case n > maxAddrs:
		return badPrev(s.IfName, fmt.Sprintf("%d addresses, at most %d can be had", n, maxAddrs))
	case n == 0 && len(s.Hostports) > 0:
		return badPrev(s.IfName, "it has no address, which a hostPort could lead to")
	}
	return nil
}
