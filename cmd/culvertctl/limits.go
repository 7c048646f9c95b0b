// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

type limitRow struct {
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	Addresses []string `json:"addresses"`
	Ifindex   int      `json:"ifindex"`
	Direction string   `json:"direction"` // ingress or egress, seen from the pod
	Rate      uint64   `json:"rate"`      // bit/s; 0: lifted at run time
	Burst     uint64   `json:"burst"`     // bit, after the cap
	Shaper    string   `json:"shaper"`    // tbf or tbf_fq_codel; "" if lifted
}

var limitsHeader = []string{"CONTAINER", "IFNAME", "ADDRESSES", "IFINDEX", "DIRECTION", "BIT/S", "BURST-BITS", "SHAPER"}

const limitsExample = `  culvertctl limits
  culvertctl limits set 10.88.0.3 --ingress 20M --egress none`

func newLimits(a *app) *cobra.Command {
	c := newView(a, "limits", "List the bandwidth limits", limitsExample, limitsHeader, readLimits)
	c.AddCommand(newLimitsSet(a))
	return c
}

func readLimits(set *maps.Set) ([]limitRow, error) {
	owners, err := readOwners(set)
	if err != nil {
		return nil, err
	}
	limits, err := maps.Collect(set.Limits.All())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(limits, func(a, b maps.Limit) int {
		return cmp.Or(cmp.Compare(a.Ifindex, b.Ifindex), cmp.Compare(a.Direction, b.Direction))
	})
	var rows []limitRow
	for _, l := range limits {
		i := owners[l.Ifindex]
		row := limitRow{
			Container: i.Container,
			IfName:    i.IfName,
			Addresses: texts(i.Addrs),
			Ifindex:   l.Ifindex,
			Direction: l.Direction.String(),
			Rate:      l.Rate,
			Burst:     l.Burst,
		}
		if l.Rate > 0 {
			row.Shaper = l.Shaper.String()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func joined(addrs []netip.Addr) string { return strings.Join(texts(addrs), ",") }

func texts(addrs []netip.Addr) []string {
	list := []string{}
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}

func (r limitRow) cells() []string {
	rate, burst := "none", ""
	if r.Rate > 0 {
		rate, burst = bits(r.Rate), bits(r.Burst)
	}
	return []string{
		short(r.Container), r.IfName, strings.Join(r.Addresses, ","), strconv.Itoa(r.Ifindex),
		r.Direction, rate, burst, r.Shaper,
	}
}
