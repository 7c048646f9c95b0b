// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"net/netip"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// textOf decodes a string; an absent one is empty.
func textOf(o netconf.Object, key string) (s string, err error) {
	if o.Get(key, &s) != nil {
		return "", bad(o, key, "not a string")
	}
	return s, nil
}

// addrOf decodes an address; an absent or empty one is the zero Addr.
func addrOf(o netconf.Object, key string) (netip.Addr, error) {
	s, err := textOf(o, key)
	if err != nil || s == "" {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, bad(o, key, "not an IP address")
	}
	return a.Unmap(), nil
}

// bad is a value that cannot be, or that is missing.
func bad(o netconf.Object, key, why string) error {
	if !o.Has(key) {
		return netconf.Bad(o.Name(key), "(none)", why)
	}
	return o.Bad(key, why)
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
