// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/culvert-cni/culvert/cmd/internal/ipam"
	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

// conf is the configuration of one call, checked as far as that goes without looking at
// the node. Unknown keys are ignored; a known one with a bad value is a BadValue.
type conf struct {
	cniVersion string
	name       string
	ipamType   string
	prevResult *current.Result
	prevRaw    json.RawMessage // as it came, if it is of cniVersion
	chained    bool            // without ipam: behind a plugin that made the interface

	pinPath  string
	attach   loader.AttachMode
	logFile  string
	logLevel slog.Level

	mtu         int
	mac         net.HardwareAddr
	uplinks     []string
	hostports   []podnet.Hostport
	mapped      map[podnet.Hostport]uint16 // hostports without their PodPort, which is the value
	loopback    bool
	exclude     []netip.Prefix
	ingress     podnet.Rate
	egress      podnet.Rate
	sourceCheck bool
	ipMasq      bool
	nonMasq     []netip.Prefix // those of the key, or the ranges that the IPAM plugin gives from
	nonMasqOwn  bool           // the latter
	dns         types.DNS
	attachments []podnet.Attachment // GC: nil if the runtime gave no list
}

// parse decodes the whole configuration, for verbs that go by it.
func parse(stdin []byte, cniArgs string) (*conf, error) {
	top, c, err := parseBasics(stdin)
	if err != nil {
		return nil, err
	}
	for _, part := range []func(netconf.Object) error{c.parseIPAM, c.parseNode, c.parseMasquerade, c.parseHostports, c.parseBandwidth, c.parseDNS, c.parseReplaced, c.parsePrevResult, c.parseMode} {
		if err := part(top); err != nil {
			return nil, err
		}
	}
	return c, c.parseMAC(top, ipam.Args(cniArgs))
}

// parseForDelete decodes what it takes to find things and takes a default where a value
// is bad: what was added has to go, also after somebody broke the configuration.
func parseForDelete(stdin []byte) (*conf, error) {
	top, c, err := parseBasics(stdin)
	if c == nil {
		return nil, err
	}
	_ = c.parseIPAM(top)
	_ = c.parseMasquerade(top)
	return c, nil
}

// parseBasics decodes the keys that every verb needs. With a bad value it gives what it
// could read beside the error.
func parseBasics(stdin []byte) (netconf.Object, *conf, error) {
	top, err := netconf.Decode("", stdin)
	if err != nil {
		return netconf.Object{}, nil, types.NewError(types.ErrDecodingFailure, "cannot decode configuration", err.Error())
	}
	c := &conf{pinPath: loader.DefaultPinPath, attach: loader.AttachAuto, loopback: true}
	return top, c, firstError(
		top.Get("cniVersion", &c.cniVersion),
		top.Get("name", &c.name),
		c.parsePins(top),
		c.parseLog(top),
	)
}

func (c *conf) parsePins(top netconf.Object) error {
	path, attach := c.pinPath, string(c.attach)
	if err := firstError(top.Get("pinPath", &path), top.Get("attach", &attach)); err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		return top.Bad("pinPath", "not an absolute path")
	}
	switch mode := loader.AttachMode(attach); mode {
	case loader.AttachAuto, loader.AttachTCX, loader.AttachClsact:
		c.pinPath, c.attach = filepath.Clean(path), mode
		return nil
	}
	return top.Bad("attach", `none of "auto", "tcx", "clsact"`)
}

func (c *conf) parseLog(top netconf.Object) error {
	var level string
	if err := firstError(top.Get("logFile", &c.logFile), top.Get("logLevel", &level)); err != nil {
		return err
	}
	switch strings.ToLower(level) {
	case "", "info":
		c.logLevel = slog.LevelInfo
	case "debug":
		c.logLevel = slog.LevelDebug
	case "warn", "warning":
		c.logLevel = slog.LevelWarn
	case "error":
		c.logLevel = slog.LevelError
	default:
		return top.Bad("logLevel", `none of "debug", "info", "warn", "error"`)
	}
	return nil
}

func (c *conf) parseIPAM(top netconf.Object) error {
	section, err := top.Object("ipam")
	if err != nil {
		return err
	}
	if err := section.Get("type", &c.ipamType); err != nil {
		return err
	}
	if why := unfitIPAM(c.ipamType); why != "" {
		c.ipamType = ""
		return section.Bad("type", why)
	}
	return nil
}

// unfitIPAM says why a plugin cannot be the IPAM plugin, whatever CNI_PATH holds.
func unfitIPAM(kind string) string {
	switch {
	case kind == "dhcp":
		return "needs a network of layer 2 around the pod, which culvert does not make"
	case kind == "culvert":
		return "culvert would call itself"
	case strings.ContainsAny(kind, "/\x00") || kind == "." || kind == "..":
		return "not the name of a plugin in CNI_PATH" // CVE-2021-20206
	}
	return ""
}

func (c *conf) parseNode(top netconf.Object) error {
	if err := firstError(top.Get("mtu", &c.mtu), top.Get("uplinks", &c.uplinks)); err != nil {
		return err
	}
	if c.mtu != 0 && (c.mtu < 68 || c.mtu > 65535) {
		return top.Bad("mtu", "not 0 and not in 68-65535")
	}
	for _, name := range c.uplinks {
		if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ ") {
			return top.Bad("uplinks", "holds something that is no device name")
		}
	}
	return nil
}

// parseDNS reads the key dns, and the capability of that name over it, which spells its
// fields otherwise.
func (c *conf) parseDNS(top netconf.Object) error {
	if err := top.Get("dns", &c.dns); err != nil {
		return err
	}
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return err
	}
	dns, err := runtime.Object("dns")
	if err != nil {
		return err
	}
	return firstError(
		dns.Get("servers", &c.dns.Nameservers),
		dns.Get("searches", &c.dns.Search),
		dns.Get("options", &c.dns.Options),
	)
}

func (c *conf) parsePrevResult(top netconf.Object) error {
	raw := top.Raw("prevResult")
	if raw == nil {
		return nil
	}
	fail := func(err error) error { return netconf.Bad("prevResult", netconf.Show(raw), err.Error()) }
	version, err := create.DecodeVersion(raw)
	if err != nil {
		return fail(err)
	}
	var given struct{ CNIVersion *string }
	if json.Unmarshal(raw, &given) == nil && given.CNIVersion == nil {
		version = c.cniVersion // runtimes leave it out, it is that of the configuration
		raw = withVersion(raw, version)
	}
	if version == c.cniVersion {
		c.prevRaw = raw
	}
	prev, err := create.Create(version, raw)
	if err != nil {
		return fail(err)
	}
	c.prevResult, err = current.NewResultFromResult(prev)
	if err == nil {
		err = whole(c.prevResult)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

func withVersion(raw json.RawMessage, version string) json.RawMessage {
	var m map[string]any
	if json.Unmarshal(raw, &m) != nil {
		return raw
	}
	m["cniVersion"] = version
	out, err := json.Marshal(m)
	if err != nil {
		return raw
	}
	return out
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
