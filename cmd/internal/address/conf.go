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
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Conf is the configuration of one call. Unknown keys are ignored; a known one with a bad
// value is a BadValue.
type Conf struct {
	CNIVersion string
	Network    string
	PinPath    string
	Sets       []Set // an address of each
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

// Parse decodes all that ADD, CHECK and STATUS need.
func Parse(stdin []byte, cniArgs string) (*Conf, error) {
	top, c, err := parseBasics(stdin)
	if err != nil {
		return nil, err
	}
	ipam, err := top.Object("ipam")
	if err != nil {
		return nil, err
	}
	for _, part := range []func() error{
		func() error { return c.parseSets(top, ipam) },
		func() error { return c.parseRoutes(ipam) },
		func() (err error) { c.ResolvConf, err = textOf(ipam, "resolvConf"); return err },
		func() error { return c.parseRequests(top, cniArgs) },
	} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	c.parsePrev(top)
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

// parseSets reads the ranges in the order in which their addresses are given: those of the
// runtime, the one that the section itself is, and its list.
func (c *Conf) parseSets(top, ipam netconf.Object) error {
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return err
	}
	if err := c.addSets(runtime, "ipRanges"); err != nil {
		return err
	}
	if ipam.Has("subnet") {
		r, err := parseRange(ipam)
		if err != nil {
			return err
		}
		c.Sets = append(c.Sets, Set{Ranges: []Range{r}})
	}
	if err := c.addSets(ipam, "ranges"); err != nil {
		return err
	}
	switch {
	case len(c.Sets) == 0:
		return netconf.Bad("ipam.ranges", "(none)", "no range of addresses: give ipam.subnet, ipam.ranges or runtimeConfig.ipRanges")
	case len(c.Sets) > maps.MaxOwnerAddrs:
		return netconf.Bad("ipam.ranges", fmt.Sprintf("%d sets", len(c.Sets)), fmt.Sprintf("a pod gets at most %d addresses", maps.MaxOwnerAddrs))
	}
	if err := checkSets(c.Sets); err != nil {
		return netconf.Bad("ipam.ranges", describe(c.Sets), err.Error())
	}
	return c.checkVersion()
}

func describe(sets []Set) string {
	var texts []string
	for _, s := range sets {
		texts = append(texts, "["+s.String()+"]")
	}
	return strings.Join(texts, " ")
}

// checkVersion refuses what the results of CNI 0.1 and 0.2 cannot say.
func (c *Conf) checkVersion() error {
	if lists, err := cniversion.GreaterThanOrEqualTo(c.CNIVersion, "0.3.0"); err != nil || lists {
		return nil
	}
	families := map[int]bool{}
	for _, s := range c.Sets {
		if bits := s.First().BitLen(); families[bits] {
			return netconf.Bad("ipam.ranges", describe(c.Sets), "CNI "+c.CNIVersion+" knows one address a family")
		}
		families[s.First().BitLen()] = true
	}
	return nil
}

// addSets reads a list of lists of ranges. A flat list, as containerd's library makes it, is a
// set for each family.
func (c *Conf) addSets(from netconf.Object, key string) error {
	flat := map[int]int{} // index of the set, by family
	return from.List(key, func(path string, raw json.RawMessage) error {
		var list []json.RawMessage
		if isNull(raw) {
			return netconf.Bad(path, netconf.Show(raw), "not a range or a list of ranges")
		}
		if json.Unmarshal(raw, &list) != nil {
			r, err := decodeRange(path, raw)
			if err != nil {
				return err
			}
			at, known := flat[r.First.BitLen()]
			if !known {
				at = len(c.Sets)
				flat[r.First.BitLen()] = at
				c.Sets = append(c.Sets, Set{})
			}
			c.Sets[at].Ranges = append(c.Sets[at].Ranges, r)
			return nil
		}
		var set Set
		for j, raw := range list {
			r, err := decodeRange(fmt.Sprintf("%s[%d]", path, j), raw)
			if err != nil {
				return err
			}
			set.Ranges = append(set.Ranges, r)
		}
		if len(set.Ranges) == 0 {
			return netconf.Bad(path, netconf.Show(raw), "a set without a range")
		}
		c.Sets = append(c.Sets, set)
		return nil
	})
}

func decodeRange(path string, raw json.RawMessage) (Range, error) {
	f, err := netconf.Decode(path, raw)
	if err != nil {
		return Range{}, err
	}
	return parseRange(f)
}

func parseRange(f netconf.Object) (Range, error) {
	s, err := textOf(f, "subnet")
	if err != nil {
		return Range{}, err
	}
	subnet, err := netip.ParsePrefix(s)
	if err != nil {
		return Range{}, bad(f, "subnet", "not a range of addresses, as 10.0.0.0/8")
	}
	if a := subnet.Addr(); a.Is4In6() && subnet.Bits() >= 96 {
		subnet = netip.PrefixFrom(a.Unmap(), subnet.Bits()-96)
	}
	first, err1 := addrOf(f, "rangeStart")
	last, err2 := addrOf(f, "rangeEnd")
	gateway, err3 := addrOf(f, "gateway")
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return Range{}, err
		}
	}
	r, err := newRange(subnet, first, last, gateway)
	var wrong rangeError
	if errors.As(err, &wrong) {
		return r, bad(f, wrong.key, wrong.why)
	}
	return r, err
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
