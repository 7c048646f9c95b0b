// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

type hostportRow struct {
	HostIP        string `json:"hostIP"` // "*": every local address
	HostPort      uint16 `json:"hostPort"`
	Protocol      string `json:"protocol"`
	Pod4          string `json:"pod4"`
	Pod6          string `json:"pod6"`
	ContainerPort uint16 `json:"containerPort"`
	Container     string `json:"container"`
	Alive         bool   `json:"alive"` // its pod lives
}

const hostportsExample = `  culvertctl hostports
  culvertctl hostports -o json | jq '.[] | select(.hostPort == 8080)'`

func newHostports(a *app) *cobra.Command {
	header := []string{"HOST-IP", "PORT", "PROTO", "POD4", "POD6", "POD-PORT", "CONTAINER", "ALIVE"}
	return newView(a, "hostports", "List the hostPorts and the pods they lead to", hostportsExample, header, readHostports)
}

func readHostports(set *maps.Set) ([]hostportRow, error) {
	owners, err := readOwners(set)
	if err != nil {
		return nil, err
	}
	live, err := set.Pods.Generations()
	if err != nil {
		return nil, err
	}
	hostports, err := maps.Collect(set.Hostports.All())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(hostports, func(a, b maps.Hostport) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto), a.Addr.Compare(b.Addr))
	})
	var rows []hostportRow
	for _, h := range hostports {
		rows = append(rows, hostportRow{
			HostIP:        addrOr(h.Addr, "*"),
			HostPort:      h.Port,
			Protocol:      maps.ProtoName(h.Proto),
			Pod4:          addrOr(h.Pod4, ""),
			Pod6:          addrOr(h.Pod6, ""),
			ContainerPort: h.PodPort,
			Container:     owners.of(h.Ifindex, h.Generation).Container,
			Alive:         live[h.Generation],
		})
	}
	return rows, nil
}

func (r hostportRow) cells() []string {
	return []string{
		r.HostIP, strconv.Itoa(int(r.HostPort)), r.Protocol, r.Pod4, r.Pod6,
		strconv.Itoa(int(r.ContainerPort)), short(r.Container), strconv.FormatBool(r.Alive),
	}
}

// urgency: a hostPort of a pod that is gone is taken by whoever asks for it next.
func (r hostportRow) urgency() urgency {
	if r.Alive {
		return calm
	}
	return warning
}

func addrOr(a netip.Addr, none string) string {
	if !a.IsValid() {
		return none
	}
	return a.String()
}
