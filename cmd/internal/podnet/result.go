// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// podInterface is the place of the pod's interface in the result.
const podInterface = 1

// result is what was done, as CNI tells it. The caller takes mtu out for versions that
// do not know it.
func (s *setup) result() *current.Result {
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: s.link.Name, Mac: s.hostMAC.String(), Mtu: s.MTU},
			{Name: s.IfName, Mac: s.mac.String(), Mtu: s.MTU, Sandbox: s.Netns.Path},
		},
		DNS: mergeDNS(s.DNS, s.ipam.DNS),
	}
	for _, a := range s.layout.addrs {
		r.IPs = append(r.IPs, &current.IPConfig{
			Interface: current.Int(podInterface),
			Address:   toIPNet(netip.PrefixFrom(a.addr, a.addr.BitLen())),
			Gateway:   a.gateway.AsSlice(),
		})
	}
	for _, route := range s.layout.told() {
		r.Routes = append(r.Routes, toResult(route))
	}
	return r
}

// mergeDNS takes each field from over, where it has it, else from under.
func mergeDNS(over, under types.DNS) types.DNS {
	out := *under.Copy()
	if len(over.Nameservers) > 0 {
		out.Nameservers = over.Nameservers
	}
	if over.Domain != "" {
		out.Domain = over.Domain
	}
	if len(over.Search) > 0 {
		out.Search = over.Search
	}
	if len(over.Options) > 0 {
		out.Options = over.Options
	}
	return out
}
