// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/loader"
)

// Conf is the configuration of one call. Unknown keys are ignored; a known one with a bad
// value is a BadValue.
type Conf struct {
	CNIVersion string
	Network    string
	PinPath    string
	Sets       []Set // ADD: an address of each; CHECK: all that there are
	Routes     []*types.Route
	ResolvConf string
	Requested  []netip.Addr
	Valid      []Attachment // GC: nil if the runtime gave no list
	Prev       []netip.Addr // CHECK: the addresses of prevResult
}

// Attachment is one that a runtime calls valid.
type Attachment struct{ Container, IfName string }

// ErrUndecodable says that a configuration is no JSON object.
var ErrUndecodable = errors.New("cannot decode configuration")

// Parse decodes all that ADD needs: the ranges that this pod gets addresses from.
func Parse(stdin []byte, cniArgs string) (*Conf, error) {
	return parse(stdin, func(c *Conf, top netconf.Object, all *ranges) error {
		names, err := all.wanted(top, cniArgs)
		if err == nil {
			c.Sets, err = all.choose(names)
		}
		if err == nil {
			err = c.checkVersion()
		}
		if err == nil {
			err = c.parseRequests(top, cniArgs)
		}
		return err
	})
}

// ParseForCheck decodes what CHECK needs. The pod may have been given its addresses before
// ranges, pools and the pod's own choice of them became what they are.
func ParseForCheck(stdin []byte) (*Conf, error) {
	return parse(stdin, func(c *Conf, top netconf.Object, all *ranges) error {
		c.Sets = all.sets
		for _, p := range all.pools {
			c.Sets = append(c.Sets, p.sets...)
		}
		c.parsePrev(top)
		return nil
	})
}

// ParseForStatus decodes what STATUS needs: the ranges of pods that choose none.
func ParseForStatus(stdin []byte) (*Conf, error) {
	return parse(stdin, func(c *Conf, _ netconf.Object, all *ranges) (err error) {
		c.Sets, err = all.choose(nil)
		return err
	})
}

func parse(stdin []byte, choose func(*Conf, netconf.Object, *ranges) error) (*Conf, error) {
	top, c, err := parseBasics(stdin)
	if err != nil {
		return nil, err
	}
	ipam, err := top.Object("ipam")
	if err != nil {
		return nil, err
	}
	all, err := parseRanges(top, ipam)
	if err != nil {
		return nil, err
	}
	for _, part := range []func() error{
		func() error { return c.parseRoutes(ipam) },
		func() (err error) { c.ResolvConf, err = textOf(ipam, "resolvConf"); return err },
		func() error { return choose(c, top, all) },
	} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ParseForDelete decodes what it takes to find things, and takes a default where a value is
// bad: what was given has to come back, also after somebody broke the configuration.
func ParseForDelete(stdin []byte) (*Conf, error) {
	_, c, err := parseBasics(stdin)
	if c == nil {
		return nil, err
	}
	return c, nil
}

// ParseForGC decodes what GC needs.
func ParseForGC(stdin []byte) (*Conf, error) {
	top, c, err := parseBasics(stdin)
	if err != nil {
		return nil, err
	}
	return c, c.parseAttachments(top)
}

func parseBasics(stdin []byte) (netconf.Object, *Conf, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(stdin, &object); err != nil {
		return netconf.Object{}, nil, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	top, err := netconf.Decode("", stdin)
	if err != nil {
		return netconf.Object{}, nil, err
	}
	c := &Conf{PinPath: loader.DefaultPinPath}
	var err1, err2 error
	c.CNIVersion, err1 = textOf(top, "cniVersion")
	c.Network, err2 = textOf(top, "name")
	err3 := c.parsePinPath(top)
	if c.CNIVersion == "" {
		c.CNIVersion = "0.1.0" // as CNI says
	}
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return top, c, err
		}
	}
	return top, c, nil
}

// parsePinPath takes that of the ipam section. Without one it is, behind culvert, culvert's
// own: one directory of pins for a network.
func (c *Conf) parsePinPath(top netconf.Object) error {
	ipam, err := top.Object("ipam")
	if err != nil {
		return err
	}
	places := []netconf.Object{ipam}
	if kind, err := textOf(top, "type"); err == nil && kind == "culvert" {
		places = append(places, top)
	}
	for _, from := range places {
		path, err := textOf(from, "pinPath")
		switch {
		case err != nil:
			return err
		case path == "":
			continue
		case !filepath.IsAbs(path) || strings.ContainsRune(path, 0):
			return bad(from, "pinPath", "not an absolute path")
		}
		c.PinPath = filepath.Clean(path)
		return nil
	}
	return nil
}

func (c *Conf) parseRoutes(ipam netconf.Object) error {
	return ipam.List("routes", func(path string, raw json.RawMessage) error {
		route := &types.Route{}
		if err := json.Unmarshal(raw, route); err != nil || route.Dst.IP == nil {
			return netconf.Bad(path, netconf.Show(raw), "not a route, as {\"dst\": \"0.0.0.0/0\"}")
		}
		c.Routes = append(c.Routes, route)
		return nil
	})
}

// parseAttachments leaves nil where there is no list; an empty list stays one.
func (c *Conf) parseAttachments(top netconf.Object) error {
	for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		if !top.Has(key) {
			continue
		}
		c.Valid = []Attachment{}
		return top.List(key, func(path string, raw json.RawMessage) error {
			var a types.GCAttachment
			if err := json.Unmarshal(raw, &a); err != nil || a.ContainerID == "" || a.IfName == "" {
				return netconf.Bad(path, netconf.Show(raw), "not a containerID and an ifname")
			}
			c.Valid = append(c.Valid, Attachment{a.ContainerID, a.IfName})
			return nil
		})
	}
	return nil
}
