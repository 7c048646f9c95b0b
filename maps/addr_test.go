// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		name, in, bytes string
		out             netip.Addr
	}{
		{"IPv4", "10.1.2.3", "::ffff:10.1.2.3", netip.MustParseAddr("10.1.2.3")},
		{"mapped IPv4", "::ffff:10.1.2.3", "::ffff:10.1.2.3", netip.MustParseAddr("10.1.2.3")},
		{"IPv6", "fd00::1", "fd00::1", netip.MustParseAddr("fd00::1")},
		{"wildcard of IPv4", "0.0.0.0", "::", netip.Addr{}},
		{"wildcard of IPv6", "::", "::", netip.Addr{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := toAddr(netip.MustParseAddr(c.in))
			if want := netip.MustParseAddr(c.bytes).As16(); a.Ip != want {
				t.Errorf("bytes %v, want %v", a.Ip, want)
			}
			if got := fromAddr(a); got != c.out {
				t.Errorf("back again %v, want %v", got, c.out)
			}
		})
	}
	if a := toAddr(netip.Addr{}); a.Ip != [16]byte{} {
		t.Errorf("no address gives %v", a)
	}
}

func TestText(t *testing.T) {
	var field [8]int8
	if err := putText(field[:], "network", "pöd"); err != nil || fromText(field[:]) != "pöd" {
		t.Errorf("got %q, %v", fromText(field[:]), err)
	}
	if err := putText(field[:], "network", "1234567"); err != nil || fromText(field[:]) != "1234567" || field[7] != 0 {
		t.Errorf("the longest text that fits: %q, %v", fromText(field[:]), err)
	}
	for _, bad := range []string{"12345678", "a\x00b"} {
		if err := putText(field[:], "network", bad); err == nil || !strings.Contains(err.Error(), "network") {
			t.Errorf("%q: error %v names no field", bad, err)
		}
	}
}
