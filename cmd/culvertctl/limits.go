// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
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
	// Now is the bit/s that pass; absent where that was not measured.
	Now *uint64 `json:"now,omitempty"`

	measured bool
}

var limitsHeader = []string{"CONTAINER", "IFNAME", "ADDRESSES", "IFINDEX", "DIRECTION", "BIT/S", "BURST-BITS", "SHAPER"}

const limitsHelp = `List the bandwidth limits, and beside each (NOW) what the pod receives or sends at
this moment, as its device counts it, measured for --interval.`

const limitsExample = `  culvertctl limits
  culvertctl limits --interval 5s     # what passes, over a longer time
  culvertctl limits --interval 0      # at once: the limits alone
  culvertctl limits set 10.88.0.3 --ingress 20M --egress none`

func newLimits(a *app) *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:     "limits",
		Short:   "List the bandwidth limits, and what passes now",
		Long:    limitsHelp,
		Example: limitsExample,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open()
			if err != nil {
				return err
			}
			defer d.Close()
			rows, err := readLimits(d.Maps)
			if err != nil {
				return err
			}
			if interval <= 0 || len(rows) == 0 {
				return show(a, limitsHeader, rows)
			}
			if err := measureLimits(c.Context(), a, rows, interval); err != nil {
				return err
			}
			return show(a, append(slices.Clone(limitsHeader), "NOW"), rows)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 500*time.Millisecond, "how long to measure; 0: not at all")
	c.AddCommand(newLimitsSet(a))
	return c
}

// measureLimits writes into the rows what passes.
func measureLimits(ctx context.Context, a *app, rows []limitRow, interval time.Duration) error {
	m, err := metrics.NewMeter(a.open)
	if err != nil {
		return err
	}
	defer m.Close()
	before, err := m.Read()
	if err != nil || !pause(ctx, interval) {
		return err
	}
	after, err := m.Read()
	if err != nil {
		return err
	}
	for i := range rows {
		passes := m.Rates(before, after, rows[i].Ifindex)
		rows[i].Now, rows[i].measured = passes.TxBits, true
		if rows[i].Direction == maps.Ingress.String() {
			rows[i].Now = passes.RxBits
		}
	}
	return nil
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
	cells := []string{
		short(r.Container), r.IfName, strings.Join(r.Addresses, ","), strconv.Itoa(r.Ifindex),
		r.Direction, rate, burst, r.Shaper,
	}
	if r.measured {
		cells = append(cells, bitsOr(r.Now, ""))
	}
	return cells
}

// urgency: a pod that fills its limit is slower than it would be.
func (r limitRow) urgency() urgency {
	if r.Now != nil && fills(*r.Now, r.Rate) {
		return warning
	}
	return calm
}

// fills says whether that much is about what the limit lets through. TCP at its limit
// counts 4 % less, since headers of packets that are not segmented yet count once.
func fills(now, limit uint64) bool { return limit > 0 && now >= limit/10*9 }

// bitsOr prints a rate, or what stands for an unknown one.
func bitsOr(n *uint64, unknown string) string {
	if n == nil {
		return unknown
	}
	return bits(*n)
}
