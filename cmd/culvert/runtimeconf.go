// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// What runtimes ask for each pod: runtimeConfig, args.cni and CNI_ARGS. containerd
// spells the keys inside as its Go fields (HostPort), kubelet's others as CNI does.

func (c *conf) parseHostports(top netconf.Object) error {
	section, err := top.Object("hostPorts")
	if err != nil {
		return err
	}
	if err := section.Get("loopback", &c.loopback); err != nil {
		return err
	}
	if c.exclude, err = parsePrefixes(section, "excludeCIDRs"); err != nil {
		return err
	}
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return err
	}
	return runtime.List("portMappings", c.addHostport)
}

func (c *conf) addHostport(path string, raw json.RawMessage) error {
	o, err := netconf.Decode(path, raw)
	if err != nil {
		return err
	}
	var p podnet.Hostport
	for _, part := range []func(netconf.Object, *podnet.Hostport) error{parsePorts, parseProtocol, parseHostIP} {
		if err := part(o, &p); err != nil {
			return err
		}
	}
	key := p
	key.PodPort = 0
	if to, twice := c.mapped[key]; twice && to != p.PodPort {
		return o.Bad("hostPort", "mapped twice, to different ports")
	} else if twice {
		return nil
	}
	if c.mapped == nil {
		c.mapped = map[podnet.Hostport]uint16{}
	}
	c.mapped[key] = p.PodPort
	c.hostports = append(c.hostports, p)
	return nil
}

func parsePorts(o netconf.Object, p *podnet.Hostport) error {
	for _, port := range []struct {
		key string
		to  *uint16
	}{{"hostPort", &p.Port}, {"containerPort", &p.PodPort}} {
		if err := o.Get(port.key, port.to); err != nil || *port.to == 0 {
			return o.Bad(port.key, "not a port, 1-65535")
		}
	}
	return nil
}

func parseProtocol(o netconf.Object, p *podnet.Hostport) error {
	name := "tcp"
	if err := o.Get("protocol", &name); err != nil {
		return err
	}
	switch strings.ToLower(name) {
	case "tcp", "":
		p.Proto = unix.IPPROTO_TCP
	case "udp":
		p.Proto = unix.IPPROTO_UDP
	case "sctp":
		p.Proto = unix.IPPROTO_SCTP
	default:
		return o.Bad("protocol", `none of "tcp", "udp", "sctp"`)
	}
	return nil
}

// parseHostIP leaves the zero Addr for every local address.
func parseHostIP(o netconf.Object, p *podnet.Hostport) error {
	var s string
	if err := o.Get("hostIP", &s); err != nil || s == "" {
		return err
	}
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil || addr.Zone() != "":
		return o.Bad("hostIP", "not an IP address")
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return o.Bad("hostIP", "not the address of a node")
	}
	if addr = addr.Unmap(); !addr.IsUnspecified() {
		p.Addr = addr
	}
	return nil
}

// parseBandwidth reads the key bandwidth, then the keys of the plugin of that name, and the
// capability of that name for what neither says.
func (c *conf) parseBandwidth(top netconf.Object) error {
	static, err := top.Object("bandwidth")
	if err != nil {
		return err
	}
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return err
	}
	if runtime, err = runtime.Object("bandwidth"); err != nil {
		return err
	}
	for _, d := range []struct {
		key string
		to  *podnet.Rate
	}{{"ingress", &c.ingress}, {"egress", &c.egress}} {
		from := runtime
		for _, o := range []netconf.Object{static, top} {
			if o.Has(d.key + "Rate") {
				from = o
				break
			}
		}
		if err := firstError(from.Get(d.key+"Rate", &d.to.Rate), from.Get(d.key+"Burst", &d.to.Burst)); err != nil {
			return err
		}
		if d.to.Rate != 0 && d.to.Rate < podnet.LeastRate {
			return from.Bad(d.key+"Rate", "not 0 (no limit) and below 1000 bit/s")
		}
		if d.to.Rate > podnet.MostRate {
			return from.Bad(d.key+"Rate", "more than 1 Pbit/s")
		}
	}
	return nil
}

// parseMAC takes the strongest of three requests.
func (c *conf) parseMAC(top netconf.Object, cniArgs map[string]string) error {
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return err
	}
	var conventions netconf.Object
	if args, err := top.Object("args"); err == nil {
		conventions, _ = args.Object("cni") // anybody's; bad values are not ours to judge
	}
	var s string
	for _, from := range []netconf.Object{runtime, conventions} {
		if !from.Has("mac") {
			continue
		}
		if err := from.Get("mac", &s); err != nil {
			return err
		}
		if s != "" {
			return c.setMAC(from.Name("mac"), s)
		}
	}
	if s := cniArgs["MAC"]; s != "" {
		return c.setMAC("MAC in CNI_ARGS", s)
	}
	return nil
}

func (c *conf) setMAC(key, s string) error {
	mac, err := net.ParseMAC(s)
	switch {
	case err != nil || len(mac) != 6:
		return netconf.Bad(key, s, "not a MAC address")
	case mac[0]&1 != 0 || !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 }):
		return netconf.Bad(key, s, "not the MAC address of one interface")
	}
	c.mac = mac
	return nil
}
