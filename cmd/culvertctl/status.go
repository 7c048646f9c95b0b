// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

type statusView struct {
	Kernel   string          `json:"kernel"`
	PinPath  string          `json:"pinPath"`
	Loaded   bool            `json:"loaded"`
	Build    string          `json:"build"` // of the object that is loaded
	Features map[string]bool `json:"features"`
	Uplinks  []uplink        `json:"uplinks"`
	Counts   map[string]int  `json:"counts"` // rows
	Faults   []fault         `json:"faults"`
}

type uplink struct {
	Ifindex int    `json:"ifindex"`
	Name    string `json:"name"`
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
		Short: "Say what is loaded and what is wrong; exit 1 if anything is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := readStatus(a)
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = showJSON(a.out, s)
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
	node := loader.Inspect(a.options())
	s := statusView{
		Kernel:  node.Kernel,
		PinPath: a.pinPath,
		Loaded:  node.Loaded,
		Features: map[string]bool{
			"conntrack": node.Features&maps.FeatureConntrack != 0,
			"tcx":       node.Features&maps.FeatureTCX != 0,
		},
		Uplinks: []uplink{},
		Counts:  map[string]int{},
		Faults:  []fault{},
	}
	for _, f := range node.Faults {
		s.Faults = append(s.Faults, fault{f.What, f.Remedy})
	}
	for _, ifindex := range node.Uplinks {
		u := uplink{Ifindex: ifindex}
		if i, err := net.InterfaceByIndex(ifindex); err == nil {
			u.Name = i.Name
		}
		s.Uplinks = append(s.Uplinks, u)
	}
	if !s.Loaded {
		return s, nil
	}
	s.Build = fmt.Sprintf("%016x", node.Build)
	return s, s.count(a)
}

func (s *statusView) count(a *app) error {
	d, err := a.open()
	if err != nil {
		return err
	}
	defer d.Close()
	return errors.Join(
		count(s.Counts, "pods", d.Maps.Pods.All()),
		count(s.Counts, "ifaces", d.Maps.Ifaces.All()),
		count(s.Counts, "hostports", d.Maps.Hostports.All()),
		count(s.Counts, "limits", d.Maps.Limits.All()),
		count(s.Counts, "flows", d.Maps.Flows.All()),
		count(s.Counts, "halfopen", d.Maps.Halfopen.All()),
		count(s.Counts, "counters", d.Maps.Counters.All()),
	)
}

func count[T any](counts map[string]int, table string, rows iter.Seq2[T, error]) error {
	counts[table] = 0
	for _, err := range rows {
		if err != nil {
			return err
		}
		counts[table]++
	}
	return nil
}

func (s statusView) print(a *app) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	line := func(key, value string) { fmt.Fprintf(w, "%s\t%s\n", key, value) }
	line("kernel", s.Kernel)
	line("pins", s.PinPath)
	if s.Loaded {
		s.printLoaded(line)
	} else {
		line("loaded", "no")
	}
	for _, f := range s.Faults {
		line("fault", loader.Fault{What: f.What, Remedy: f.Remedy}.Error())
	}
	return w.Flush()
}

func (s statusView) printLoaded(line func(key, value string)) {
	line("loaded", "yes, build "+s.Build)
	for _, name := range sortedKeys(s.Features) {
		line(name, map[bool]string{true: "yes", false: "no"}[s.Features[name]])
	}
	names := []string{}
	for _, u := range s.Uplinks {
		names = append(names, fmt.Sprintf("%s (%d)", u.Name, u.Ifindex))
	}
	line("uplinks", strings.Join(names, ", "))
	for _, table := range sortedKeys(s.Counts) {
		line("rows of "+table, fmt.Sprint(s.Counts[table]))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
