// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// addressRow is an address that culvert-ipam gave. Who has it, or had it last.
type addressRow struct {
	Address    string `json:"address"`
	Network    string `json:"network"`
	Container  string `json:"container"`
	IfName     string `json:"ifname"`
	Netns      string `json:"netns"` // that of a released address is not known any more
	State      string `json:"state"` // held or released
	AgeSeconds int64  `json:"ageSeconds"`
}

const addressesExample = `  culvertctl addresses
  culvertctl addresses --all   # also those that were released, and who had them last
  culvertctl addresses -o json | jq 'group_by(.network) | map({(.[0].network): length}) | add'`

func newAddresses(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     "addresses",
		Short:   "List the addresses that culvert-ipam gave, and who has them",
		Example: addressesExample,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			table, err := loader.OpenAddresses(a.options())
			if err != nil {
				return err
			}
			defer table.Close()
			rows, err := readAddresses(table.Addresses, a.now, all)
			if err != nil {
				return err
			}
			return show(a, []string{"ADDRESS", "NETWORK", "CONTAINER", "IFNAME", "STATE", "SINCE"}, rows)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also list addresses that were released, and who had them last")
	return c
}

func readAddresses(table *maps.Addresses, now time.Duration, all bool) ([]addressRow, error) {
	tenants, err := maps.Collect(table.Tenants())
	if err != nil {
		return nil, err
	}
	netns := map[maps.Owner]string{}
	for _, t := range tenants {
		netns[t.Owner] = t.NetnsPath
	}
	leases, err := maps.Collect(table.Leases())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(leases, func(a, b maps.Lease) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Addr.Compare(b.Addr))
	})
	var rows []addressRow
	for _, l := range leases {
		held := l.State == maps.AddressHeld
		if !held && !all {
			continue
		}
		row := addressRow{
			Address: l.Addr.String(), Network: l.Network, Container: l.Container, IfName: l.IfName,
			State: l.State.String(), AgeSeconds: int64((now - l.Since).Seconds()),
		}
		if held {
			row.Netns = netns[l.Owner]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (r addressRow) cells() []string {
	return []string{r.Address, r.Network, short(r.Container), r.IfName, r.State, fmt.Sprintf("%ds", r.AgeSeconds)}
}
