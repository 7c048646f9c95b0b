// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// parseRequests takes the strongest of the ways to ask for addresses: runtimeConfig.ips, then
// args.cni.ips, then IP in CNI_ARGS.
func (c *Conf) parseRequests(top fields, cniArgs string) error {
	runtime, err := top.object("runtimeConfig")
	if err != nil {
		return err
	}
	places := []fields{runtime}
	if args, err := top.object("args"); err == nil {
		if conventions, err := args.object("cni"); err == nil { // anybody's, as args is
			places = append(places, conventions)
		}
	}
	for _, from := range places {
		elements, err := from.list("ips")
		if err != nil {
			return err
		}
		for i, raw := range elements {
			var s string
			path := fmt.Sprintf("%sips[%d]", from.path, i)
			if json.Unmarshal(raw, &s) != nil {
				return BadValue{path, shown(raw), "not a string"}
			}
			if err := c.request(path, s); err != nil {
				return err
			}
		}
		if len(c.Requested) > 0 {
			return nil
		}
	}
	for _, pair := range strings.Split(cniArgs, ";") {
		name, value, _ := strings.Cut(pair, "=")
		value = strings.TrimSpace(value)
		if strings.EqualFold(strings.TrimSpace(name), "IP") && value != "" {
			return c.request("IP in CNI_ARGS", value)
		}
	}
	return nil
}

// request takes an address, or one with the length of its subnet, which the ranges say better.
func (c *Conf) request(key, s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil {
		var p netip.Prefix
		p, err = netip.ParsePrefix(s)
		a = p.Addr()
	}
	if err != nil || a.Zone() != "" {
		return BadValue{key, s, "not an IP address"}
	}
	a = a.Unmap()
	for _, set := range c.Sets {
		r, in := set.Range(a)
		switch {
		case in && a == r.Gateway:
			return BadValue{key, s, "the gateway's address"}
		case in && set.Reserved[a]:
			return BadValue{key, s, "a gateway's, a subnet's own or its broadcast address"}
		case in:
			c.Requested = append(c.Requested, a)
			return nil
		}
	}
	return BadValue{key, s, "in no range of this network: " + describe(c.Sets)}
}

// parsePrev reads the addresses that a result of any version has. CHECK compares; what cannot
// be read is whoever made it to answer for.
func (c *Conf) parsePrev(top fields) {
	var prev struct {
		IPs      []struct{ Address string }
		IP4, IP6 struct{ IP string }
	}
	if !top.has("prevResult") || json.Unmarshal(top.raw("prevResult"), &prev) != nil {
		return
	}
	texts := []string{prev.IP4.IP, prev.IP6.IP}
	for _, ip := range prev.IPs {
		texts = append(texts, ip.Address)
	}
	for _, s := range texts {
		if p, err := netip.ParsePrefix(s); err == nil {
			c.Prev = append(c.Prev, p.Addr().Unmap())
		}
	}
}
