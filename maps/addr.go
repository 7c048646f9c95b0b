// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/culvert-cni/culvert/bpf"
)

// toAddr gives the 16 bytes of an address, IPv4 as ::ffff:a.b.c.d. The zero Addr and
// the unspecified address of either family are all zero: "none", or the wildcard.
func toAddr(a netip.Addr) bpf.DatapathAddr {
	if !a.IsValid() || a.Unmap().IsUnspecified() {
		return bpf.DatapathAddr{}
	}
	return bpf.DatapathAddr{Ip: a.As16()}
}

// fromAddr is the reverse of toAddr: all zero is the zero Addr, and so is 0.0.0.0.
func fromAddr(a bpf.DatapathAddr) netip.Addr {
	addr := netip.AddrFrom16(a.Ip).Unmap()
	if addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// putText writes s NUL-terminated into a field of the kernel's row. Text that does not
// fit is refused: cut short it would name another owner.
func putText(field []int8, name, s string) error {
	if len(s) >= len(field) {
		return fmt.Errorf("%s %q has %d bytes, at most %d fit", name, s, len(s), len(field)-1)
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%s %q holds a NUL byte", name, s)
	}
	for i := range len(s) {
		field[i] = int8(s[i])
	}
	return nil
}

func fromText(field []int8) string {
	var b strings.Builder
	for _, c := range field {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
