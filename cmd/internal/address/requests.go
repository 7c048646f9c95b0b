// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// parseRequests takes the strongest of the ways to ask for addresses: runtimeConfig.ips, then
// args.cni.ips, then IP in CNI_ARGS.
func (c *Conf) parseRequests(top netconf.Object, cniArgs string) error {
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return err
	}
	places := []netconf.Object{runtime}
	if args, err := top.Object("args"); err == nil {
		if conventions, err := args.Object("cni"); err == nil { // anybody's, as args is
			places = append(places, conventions)
		}
	}
	for _, from := range places {
		err := from.List("ips", func(path string, raw json.RawMessage) error {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return netconf.Bad(path, netconf.Show(raw), "not a string")
			}
			return c.request(path, s)
		})
		if err != nil {
			return err
		}
		if len(c.Requested) > 0 {
			return nil
		}
	}
	if value := argument(cniArgs, "IP"); value != "" {
		return c.request("IP in CNI_ARGS", value)
	}
	return nil
}

// argument is a value of CNI_ARGS, the first that is not empty.
func argument(cniArgs, name string) string {
	for _, pair := range strings.Split(cniArgs, ";") {
		key, value, _ := strings.Cut(pair, "=")
		value = strings.TrimSpace(value)
		if strings.EqualFold(strings.TrimSpace(key), name) && value != "" {
			return value
		}
	}
	return ""
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
		return netconf.Bad(key, s, "not an IP address")
	}
	a = a.Unmap()
	for _, set := range c.Sets {
		r, in := set.Range(a)
		switch {
		case in && a == r.Gateway:
			return netconf.Bad(key, s, "the gateway's address")
		case in && !set.Gives(a):
			return netconf.Bad(key, s, "reserved, a gateway's, a subnet's own or its broadcast address")
		case in:
			c.Requested = append(c.Requested, a)
			return nil
		}
	}
	return netconf.Bad(key, s, "in no range of this network: "+describe(c.Sets))
}

// parsePrev reads the addresses that a result of any version has. CHECK compares; what cannot
// be read is whoever made it to answer for.
func (c *Conf) parsePrev(top netconf.Object) {
	var prev struct {
		IPs      []struct{ Address string }
		IP4, IP6 struct{ IP string }
	}
	if !top.Has("prevResult") || json.Unmarshal(top.Raw("prevResult"), &prev) != nil {
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
