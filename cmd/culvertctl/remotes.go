// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"slices"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

// remoteRow is a range of addresses that another node has.
type remoteRow struct {
	Range    string `json:"range"`
	Way      string `json:"way"`      // direct, tunnel, or node: an address of a node itself
	Endpoint string `json:"endpoint"` // the node
	Local    string `json:"local"`    // a tunnel's end here; "": the kernel's choice
	VNI      uint32 `json:"vni"`
	Ifindex  int    `json:"ifindex"` // of the device to there, if the fast path takes it; 0: only the stack
	Device   string `json:"device"`
}

const remotesExample = `  culvertctl remotes
  culvertctl remotes -o json | jq -r '.[] | select(.way == "tunnel") | .range + " " + .endpoint'`

func newRemotes(a *app) *cobra.Command {
	header := []string{"RANGE", "WAY", "NODE", "DEVICE"}
	return newView(a, "remotes", "List other nodes' addresses and the ways to them", remotesExample, header, readRemotes)
}

func readRemotes(set *maps.Set) ([]remoteRow, error) {
	remotes, err := maps.Collect(set.Remotes.All())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(remotes, func(a, b maps.Remote) int { return a.Prefix.Compare(b.Prefix) })
	var rows []remoteRow
	for _, r := range remotes {
		row := remoteRow{
			Range: r.Prefix.String(), Way: r.Kind.String(), Endpoint: addrOr(r.Endpoint, ""), Local: addrOr(r.Local, ""),
			VNI: r.VNI, Ifindex: r.Ifindex,
		}
		if i, err := net.InterfaceByIndex(r.Ifindex); err == nil {
			row.Device = i.Name
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (r remoteRow) cells() []string { return []string{r.Range, r.Way, r.Endpoint, r.Device} }
