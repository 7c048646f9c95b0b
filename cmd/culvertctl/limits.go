// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

type limitRow struct {
	Container string `json:"container"`
	Ifindex   int    `json:"ifindex"`
	Direction string `json:"direction"` // ingress or egress, seen from the pod
	Rate      uint64 `json:"rate"`      // bit/s
	Burst     uint64 `json:"burst"`     // bit, after the cap
}

func newLimits(a *app) *cobra.Command {
	header := []string{"CONTAINER", "IFINDEX", "DIRECTION", "BIT/S", "BURST-BITS"}
	return newView(a, "limits", "List the bandwidth limits", header, readLimits)
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
		rows = append(rows, limitRow{
			Container: owners[l.Ifindex].Container,
			Ifindex:   l.Ifindex,
			Direction: l.Direction.String(),
			Rate:      l.Rate,
			Burst:     l.Burst,
		})
	}
	return rows, nil
}

func (r limitRow) cells() []string {
	return []string{short(r.Container), strconv.Itoa(r.Ifindex), r.Direction, bits(r.Rate), bits(r.Burst)}
}
