// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

type podRow struct {
	Address    string   `json:"address"`
	Container  string   `json:"container"`
	Network    string   `json:"network"`
	IfName     string   `json:"ifname"`
	Ifindex    int      `json:"ifindex"`
	HostIfName string   `json:"hostIfname"`
	MAC        string   `json:"mac"`
	Netns      string   `json:"netns"`
	MTU        int      `json:"mtu"`
	Generation uint64   `json:"generation"`
	Flags      []string `json:"flags"`
}

const podsExample = `  culvertctl pods
  culvertctl pods -o json | jq -r '.[] | select(.container | startswith("4f2a")) | .address'`

func newPods(a *app) *cobra.Command {
	header := []string{"ADDRESS", "CONTAINER", "NETWORK", "IFNAME", "HOST", "MAC", "MTU", "FLAGS"}
	return newView(a, "pods", "List the pods' addresses, one a line", podsExample, header, readPods)
}

func readPods(set *maps.Set) ([]podRow, error) {
	owners, err := readOwners(set)
	if err != nil {
		return nil, err
	}
	pods, err := maps.Collect(set.Pods.All())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b maps.Pod) int {
		return cmp.Or(cmp.Compare(a.Ifindex, b.Ifindex), a.Addr.Compare(b.Addr))
	})
	var rows []podRow
	for _, p := range pods {
		i := owners.of(p.Ifindex, p.Generation)
		rows = append(rows, podRow{
			Address:    p.Addr.String(),
			Container:  i.Container,
			Network:    i.Network,
			IfName:     i.IfName,
			Ifindex:    p.Ifindex,
			HostIfName: i.HostIfName,
			MAC:        p.MAC.String(),
			Netns:      i.NetnsPath,
			MTU:        p.MTU,
			Generation: p.Generation,
			Flags:      p.Flags.Names(),
		})
	}
	return rows, nil
}

func (r podRow) cells() []string {
	return []string{
		r.Address, short(r.Container), r.Network, r.IfName, r.HostIfName, r.MAC,
		strconv.Itoa(r.MTU), strings.Join(r.Flags, ","),
	}
}

// short is a container id as runtimes print it in tables.
func short(container string) string {
	if len(container) > 13 {
		return container[:13]
	}
	return container
}
