// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/netip"
)

// parseMasquerade reads what is masqueraded. Without the key nonMasqueradeCIDRs the pods
// of the network see each other's addresses; an empty list means that nobody does.
func (c *conf) parseMasquerade(top object) (err error) {
	if err := top.get("ipMasq", &c.ipMasq); err != nil {
		return err
	}
	if c.nonMasq, err = parsePrefixes(top, "nonMasqueradeCIDRs"); err != nil {
		return err
	}
	if !top.has("nonMasqueradeCIDRs") {
		c.nonMasq = podRanges(top)
	}
	return nil
}

// podRanges are the ranges that the configuration has the IPAM plugin take addresses from,
// as host-local and static spell them. The plugin judges them: what cannot be read is none.
func podRanges(top object) []netip.Prefix {
	type ipRange struct{ Subnet string }
	var ipam struct {
		ipRange
		Ranges    [][]ipRange
		Addresses []struct{ Address string }
	}
	var runtime struct{ IPRanges []json.RawMessage }
	_ = json.Unmarshal(top.raw("ipam"), &ipam)
	_ = json.Unmarshal(top.raw("runtimeConfig"), &runtime)
	texts := []string{ipam.Subnet}
	sets := ipam.Ranges
	for _, raw := range runtime.IPRanges {
		set, flat := []ipRange{}, ipRange{}
		if json.Unmarshal(raw, &set) != nil && json.Unmarshal(raw, &flat) == nil {
			set = []ipRange{flat} // containerd's library makes no list of lists
		}
		sets = append(sets, set)
	}
	for _, set := range sets {
		for _, r := range set {
			texts = append(texts, r.Subnet)
		}
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

func parsePrefixes(o object, key string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	err := o.list(key, func(path string, raw json.RawMessage) error {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return badValue(path, show(raw), "not a string")
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return badValue(path, show(raw), "not a range of addresses, as 10.0.0.0/8")
		}
		out = append(out, p.Masked())
		return nil
	})
	return out, err
}
