// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Subnets lists the global addresses of a device, each with its own bits and the length of the
// subnet that it is on; none of a device that is gone.
func (h *Handle) Subnets(index int) ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		msg := nl.NewIfAddrmsg(family)
		msg.Index = uint32(index)
		list, err := dump(func() (list []netip.Prefix, err error) {
			req, err := h.request(unix.RTM_GETADDR, unix.NLM_F_DUMP, msg)
			if err != nil {
				return nil, err
			}
			err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(m []byte) bool {
				if a := globalAddr(m); a.IsValid() {
					list = append(list, netip.PrefixFrom(a, int(nl.DeserializeIfAddrmsg(m).Prefixlen)))
				}
				return true
			})
			return list, err
		})
		if errors.Is(err, unix.ENODEV) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list addresses of device %d: %w", index, err)
		}
		subnets = append(subnets, list...)
	}
	return subnets, nil
}
