// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// Chained behind another plugin, culvert takes the place of the plugins portmap and
// bandwidth, whose own keys it knows.

// parseReplaced reads portmap's and bandwidth's keys. What is without effect is left to be
// what it is: clients are seen with their own addresses in any case, so that nothing is
// to be marked or masqueraded. What would change who is served is refused.
func (c *conf) parseReplaced(top netconf.Object) error {
	var snat, masqAll bool
	var markBit int
	var markChain, backend string
	err := firstError(
		top.Get("snat", &snat), top.Get("markMasqBit", &markBit), top.Get("externalSetMarkChain", &markChain),
		top.Get("backend", &backend), top.Get("masqAll", &masqAll),
	)
	if err != nil {
		return err
	}
	if masqAll {
		return top.Bad("masqAll", "clients of a hostPort are seen with their own addresses")
	}
	for _, key := range []string{"conditionsV4", "conditionsV6"} {
		if err := refuseList(top, key, "these are conditions of iptables, and culvert has no rules there"); err != nil {
			return err
		}
	}
	for _, key := range []string{"shapedSubnets", "unshapedSubnets"} {
		if err := refuseList(top, key, "a limit holds towards everybody"); err != nil {
			return err
		}
	}
	return nil
}

// refuseList wants a list to be empty.
func refuseList(o netconf.Object, key, why string) error {
	var list []json.RawMessage
	if err := o.Get(key, &list); err != nil || len(list) == 0 {
		return err
	}
	return o.Bad(key, why)
}

// parseMode tells a chained plugin's configuration from that of a main plugin: it has no
// ipam. It comes last, as defaults depend on it.
func (c *conf) parseMode(top netconf.Object) error {
	c.chained = c.ipamType == ""
	c.sourceCheck = !c.chained
	if err := top.Get("sourceCheck", &c.sourceCheck); err != nil || !c.chained {
		return err
	}
	if c.mtu != 0 {
		return top.Bad("mtu", "without ipam culvert is chained: the interface has the MTU that its own plugin gave it")
	}
	if c.prevResult != nil && !top.Has("nonMasqueradeCIDRs") {
		for _, ip := range c.prevResult.IPs {
			if ip == nil {
				continue
			}
			addr, _ := netip.AddrFromSlice(ip.Address.IP)
			ones, _ := ip.Address.Mask.Size()
			if p, err := addr.Unmap().Prefix(ones); err == nil {
				c.nonMasq = append(c.nonMasq, p)
			}
		}
	}
	return nil
}

// checkAdd checks that ADD knows who makes the interface: culvert, with an IPAM plugin, or
// the plugin before it.
func (c *conf) checkAdd() error {
	switch {
	case c.chained && c.prevResult == nil:
		return netconf.Bad("ipam.type", "(none)", "culvert needs an IPAM plugin to make the interface, or prevResult, "+
			"chained behind the plugin that made it")
	case !c.chained && c.prevResult != nil:
		return netconf.Bad("ipam.type", fmt.Sprintf("%q", c.ipamType),
			"prevResult is given: chained, the plugin before culvert makes the interface and gives it its addresses; leave ipam out")
	}
	return nil
}

// printPrev prints the result of the plugins before us, as it came.
func (c *conf) printPrev() error {
	if c.prevRaw == nil {
		return printResult(c.prevResult, c.cniVersion)
	}
	_, err := os.Stdout.Write(append(c.prevRaw, '\n'))
	return err
}
