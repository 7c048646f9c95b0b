// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/netip"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// parseMasquerade reads what is masqueraded. Without the key nonMasqueradeCIDRs the pods
// of the network see each other's addresses; an empty list means that nobody does.
func (c *conf) parseMasquerade(top netconf.Object) (err error) {
	if err := top.Get("ipMasq", &c.ipMasq); err != nil {
		return err
	}
	if c.nonMasq, err = parsePrefixes(top, "nonMasqueradeCIDRs"); err != nil {
		return err
	}
	if !top.Has("nonMasqueradeCIDRs") {
		c.nonMasq, c.nonMasqOwn = podRanges(top), true
	}
	return nil
}

// ipRange is a range of addresses as IPAM plugins spell it, as far as it matters here.
type ipRange struct{ Subnet string }

// podRanges are the ranges that the configuration has the IPAM plugin take addresses from,
// as host-local, static and culvert-ipam spell them. The plugin judges them: what cannot be
// read is none.
func podRanges(top netconf.Object) []netip.Prefix {
	var ipam struct {
		ipRange
		Ranges    []json.RawMessage
		Addresses []struct{ Address string }
		Pools     map[string]struct{ Ranges []json.RawMessage }
	}
	var runtime struct{ IPRanges []json.RawMessage }
	_ = json.Unmarshal(top.Raw("ipam"), &ipam)
	_ = json.Unmarshal(top.Raw("runtimeConfig"), &runtime)
	texts := append([]string{ipam.Subnet}, subnets(ipam.Ranges)...)
	texts = append(texts, subnets(runtime.IPRanges)...)
	for _, p := range ipam.Pools {
		texts = append(texts, subnets(p.Ranges)...)
	}
	for _, a := range ipam.Addresses {
		texts = append(texts, a.Address)
	}
	var out []netip.Prefix
	for _, s := range texts {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// subnets are those of a list of lists of ranges, or of the flat list that containerd's
// library makes.
func subnets(list []json.RawMessage) (texts []string) {
	for _, raw := range list {
		set, flat := []ipRange{}, ipRange{}
		if json.Unmarshal(raw, &set) != nil && json.Unmarshal(raw, &flat) == nil {
			set = []ipRange{flat}
		}
		for _, r := range set {
			texts = append(texts, r.Subnet)
		}
	}
	return texts
}

func parsePrefixes(o netconf.Object, key string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	err := o.List(key, func(path string, raw json.RawMessage) error {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return netconf.Bad(path, netconf.Show(raw), "not a string")
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return netconf.Bad(path, netconf.Show(raw), "not a range of addresses, as 10.0.0.0/8")
		}
		out = append(out, p.Masked())
		return nil
	})
	return out, err
}
