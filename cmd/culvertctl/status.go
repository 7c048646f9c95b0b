// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

type statusView struct {
	Kernel   string          `json:"kernel"`
	PinPath  string          `json:"pinPath"`
	Loaded   bool            `json:"loaded"`
	Build    string          `json:"build"` // of the object that is loaded
	Features map[string]bool `json:"features"`
	Shaper   string          `json:"shaper"` // of limits: tbf, tbf_fq_codel or "", as decided at load
	Uplinks  []uplink        `json:"uplinks"`
	Counts   map[string]int  `json:"counts"` // rows

	MasqueradePorts []string    `json:"masqueradePorts"` // "61000-65535"
	Nonmasq         []cidrRange `json:"nonmasq"`
	Excluded        []cidrRange `json:"excluded"`

	Faults   []fault `json:"faults"`
	Warnings []fault `json:"warnings"`
}

type uplink struct {
	Ifindex int    `json:"ifindex"`
	Name    string `json:"name"`
	Addr4   string `json:"addr4"` // that masqueraded packets leave with; "" also if no pod asked for it
	Addr6   string `json:"addr6"`
}

type cidrRange struct {
	Range    string   `json:"range"`
	Networks []string `json:"networks"`
}

type fault struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// errFaulty makes the exit code; what is wrong has been printed.
var errFaulty = errors.New("the node has faults: see above")

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what is loaded and what is wrong; exit 1 if that keeps pods from starting",
		Example: `  culvertctl status
  culvertctl status -o json | jq -r '.faults[], .warnings[] | .what + ": " + .remedy'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := readStatus(a)
			if err != nil {
				return err
			}
			if a.output != "table" {
				err = a.encode(s)
			} else {
				err = s.print(a)
			}
			if err == nil && len(s.Faults) > 0 {
				err = errFaulty
			}
			return err
		},
	}
}

func readStatus(a *app) (statusView, error) {
	handle, err := netdev.Open()
	if err != nil {
		return statusView{}, err
	}
	defer handle.Close()
	opts := a.options()
	opts.Netlink = handle
	node := loader.Inspect(opts)
	s := statusView{
		Kernel:  node.Kernel,
		PinPath: a.pinPath,
		Loaded:  node.Loaded,
		Features: map[string]bool{
			"conntrack":    node.Features&maps.FeatureConntrack != 0,
			"tcx":          node.Features&maps.FeatureTCX != 0,
			"shared_ports": node.Features&maps.FeatureSharedPorts != 0,
			"fq_codel":     node.Features&maps.FeatureFqCodel != 0,
			"tbf":          node.Features&maps.FeatureTBF != 0,
		},
		Shaper:          shaper(node.Features),
		Uplinks:         []uplink{},
		Counts:          map[string]int{},
		MasqueradePorts: []string{},
		Nonmasq:         []cidrRange{},
		Excluded:        []cidrRange{},
		Faults:          told(node.Faults),
		Warnings:        told(node.Warnings),
	}
	for _, ifindex := range node.Uplinks {
		u := uplink{Ifindex: ifindex}
		if i, err := net.InterfaceByIndex(ifindex); err == nil {
			u.Name = i.Name
		}
		s.Uplinks = append(s.Uplinks, u)
	}
	deps := &podnet.Deps{Node: handle, PinPath: a.pinPath, Log: slog.New(slog.DiscardHandler)}
	if !s.Loaded {
		return s, s.look(deps)
	}
	s.Build = fmt.Sprintf("%016x", node.Build)
	deps.Datapath, err = loader.Open(opts)
	if err != nil {
		return s, err
	}
	defer deps.Datapath.Close()
	m := deps.Datapath.Maps
	s.Counts, err = metrics.Rows(m)
	return s, errors.Join(err, s.masquerade(m), s.look(deps))
}

// look adds what is amiss on the node and on pods.
func (s *statusView) look(deps *podnet.Deps) error {
	found, err := podnet.Inspect(deps, true)
	s.Warnings = append(s.Warnings, told(found)...)
	return err
}

// shaper is what a pod's limit is held with from now on.
func shaper(f maps.Features) string {
	switch {
	case f&maps.FeatureTBF == 0:
		return ""
	case f&maps.FeatureFqCodel == 0:
		return maps.ShaperTBF.String()
	}
	return maps.ShaperTBFFqCodel.String()
}

func told(faults []loader.Fault) []fault {
	list := []fault{}
	for _, f := range faults {
		list = append(list, fault{f.What, f.Remedy})
	}
	return list
}

// masquerade reads what pods' packets to outside are held to, and hostPorts.
func (s *statusView) masquerade(m *maps.Set) error {
	config, err := m.Config.Get()
	if err != nil {
		return err
	}
	for _, r := range config.Ports {
		s.MasqueradePorts = append(s.MasqueradePorts, r.String())
	}
	for i := range s.Uplinks {
		for _, u := range config.Uplinks {
			if u.Ifindex == s.Uplinks[i].Ifindex {
				s.Uplinks[i].Addr4, s.Uplinks[i].Addr6 = addrOr(u.Addr4, ""), addrOr(u.Addr6, "")
			}
		}
	}
	var err2 error
	s.Nonmasq, err = readCidrs(m.Nonmasq)
	s.Excluded, err2 = readCidrs(m.Excluded)
	return errors.Join(err, err2)
}

func readCidrs(table *maps.Cidrs) ([]cidrRange, error) {
	rows, err := maps.Collect(table.All())
	slices.SortFunc(rows, func(a, b maps.Cidr) int { return a.Prefix.Compare(b.Prefix) })
	list := []cidrRange{}
	for _, r := range rows {
		list = append(list, cidrRange{r.Prefix.String(), r.Networks})
	}
	return list, err
}
