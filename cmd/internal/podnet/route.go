// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
)

// addRoute takes a route of the IPAM result. One without a gateway goes to the family's,
// unless its scope says that the destination is on the link.
func (l *layout) addRoute(r *types.Route) error {
	ones, bits := r.Dst.Mask.Size()
	dst, ok := netip.AddrFromSlice(r.Dst.IP)
	if !ok || bits == 0 {
		return fmt.Errorf("use IPAM result: route to %v has no destination", r.Dst)
	}
	route := netdev.Route{
		Dst:      netip.PrefixFrom(dst.Unmap(), ones).Masked(),
		MTU:      r.MTU,
		AdvMSS:   r.AdvMSS,
		Priority: r.Priority,
	}
	if r.Table != nil {
		route.Table = *r.Table
	}
	if r.Scope != nil {
		route.Scope = *r.Scope
	}
	v6 := route.Dst.Addr().Is6()
	if !l.has(v6) {
		return nil // of a family that the pod has not
	}
	gateway, ok := netip.AddrFromSlice(r.GW)
	switch {
	case ok && !gateway.IsUnspecified():
		route.Gateway = gateway.Unmap()
	case route.Scope < unix.RT_SCOPE_LINK:
		route.Gateway = l.gateway(v6)
	}
	if route.Gateway.IsValid() && route.Gateway.Is6() != v6 {
		return fmt.Errorf("use IPAM result: gateway %s of route to %s is of another family", route.Gateway, route.Dst)
	}
	l.routes = append(l.routes, route)
	return nil
}

// toResult is the reverse of addRoute: a route as it was applied.
func toResult(r netdev.Route) *types.Route {
	out := &types.Route{Dst: toIPNet(r.Dst), MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority}
	if r.Gateway.IsValid() {
		out.GW = r.Gateway.AsSlice()
	}
	if r.Table != 0 {
		out.Table = &r.Table
	}
	if r.Scope != 0 {
		out.Scope = &r.Scope
	}
	return out
}

func toIPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
