// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// What runtimes ask for each pod: runtimeConfig, args.cni and CNI_ARGS. containerd
// spells the keys inside as its Go fields (HostPort), kubelet's others as CNI does.

func (c *conf) parseHostports(top object) error {
	section, err := top.object("hostPorts")
	if err != nil {
		return err
	}
	if err := section.get("loopback", &c.loopback); err != nil {
		return err
	}
	if c.exclude, err = parsePrefixes(section, "excludeCIDRs"); err != nil {
		return err
	}
	runtime, err := top.object("runtimeConfig")
	if err != nil {
		return err
	}
	return runtime.list("portMappings", c.addHostport)
}

func (c *conf) addHostport(path string, raw json.RawMessage) error {
	o, err := decodeObject(path, raw)
	if err != nil {
		return err
	}
	var p podnet.Hostport
	for _, part := range []func(object, *podnet.Hostport) error{parsePorts, parseProtocol, parseHostIP} {
		if err := part(o, &p); err != nil {
			return err
		}
	}
	key := p
	key.PodPort = 0
	if to, twice := c.mapped[key]; twice && to != p.PodPort {
		return o.bad("hostPort", "mapped twice, to different ports")
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

func parsePorts(o object, p *podnet.Hostport) error {
	for _, port := range []struct {
		key string
		to  *uint16
	}{{"hostPort", &p.Port}, {"containerPort", &p.PodPort}} {
		if err := o.get(port.key, port.to); err != nil || *port.to == 0 {
			return o.bad(port.key, "not a port, 1-65535")
		}
	}
	return nil
}

func parseProtocol(o object, p *podnet.Hostport) error {
	name := "tcp"
	if err := o.get("protocol", &name); err != nil {
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
		return o.bad("protocol", `none of "tcp", "udp", "sctp"`)
	}
	return nil
}

// parseHostIP leaves the zero Addr for every local address.
func parseHostIP(o object, p *podnet.Hostport) error {
	var s string
	if err := o.get("hostIP", &s); err != nil || s == "" {
		return err
	}
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil || addr.Zone() != "":
		return o.bad("hostIP", "not an IP address")
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return o.bad("hostIP", "not the address of a node")
	}
	if addr = addr.Unmap(); !addr.IsUnspecified() {
		p.Addr = addr
	}
	return nil
}

// parseBandwidth reads the key bandwidth, then the keys of the plugin of that name, and the
// capability of that name for what neither says.
func (c *conf) parseBandwidth(top object) error {
	static, err := top.object("bandwidth")
	if err != nil {
		return err
	}
	runtime, err := top.object("runtimeConfig")
	if err != nil {
		return err
	}
	if runtime, err = runtime.object("bandwidth"); err != nil {
		return err
	}
	for _, d := range []struct {
		key string
		to  *podnet.Rate
	}{{"ingress", &c.ingress}, {"egress", &c.egress}} {
		from := runtime
		for _, o := range []object{static, top} {
			if o.has(d.key + "Rate") {
				from = o
				break
			}
		}
		if err := firstError(from.get(d.key+"Rate", &d.to.Rate), from.get(d.key+"Burst", &d.to.Burst)); err != nil {
			return err
		}
		if d.to.Rate != 0 && d.to.Rate < podnet.LeastRate {
			return from.bad(d.key+"Rate", "not 0 (no limit) and below 1000 bit/s")
		}
		if d.to.Rate > podnet.MostRate {
			return from.bad(d.key+"Rate", "more than 1 Pbit/s")
		}
	}
	return nil
}

// parseMAC takes the strongest of three requests.
func (c *conf) parseMAC(top object, cniArgs map[string]string) error {
	runtime, err := top.object("runtimeConfig")
	if err != nil {
		return err
	}
	var conventions object
	if args, err := top.object("args"); err == nil {
		conventions, _ = args.object("cni") // anybody's; bad values are not ours to judge
	}
	var s string
	for _, from := range []object{runtime, conventions} {
		if !from.has("mac") {
			continue
		}
		if err := from.get("mac", &s); err != nil {
			return err
		}
		if s != "" {
			return c.setMAC(from.path+"mac", s)
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
		return badValue(key, s, "not a MAC address")
	case mac[0]&1 != 0 || !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 }):
		return badValue(key, s, "not the MAC address of one interface")
	}
	c.mac = mac
	return nil
}
