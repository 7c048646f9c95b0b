// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/maps"
)

type flowRow struct {
	Proto      string   `json:"proto"`
	Side       string   `json:"side"` // whose packets: fast, stack or wire
	Src        string   `json:"src"`  // the packet as it comes
	Dst        string   `json:"dst"`
	ToSrc      string   `json:"toSrc"` // as it leaves
	ToDst      string   `json:"toDst"`
	Action     string   `json:"action"`
	Flags      []string `json:"flags"`
	State      []string `json:"state"`
	HalfOpen   bool     `json:"halfOpen"`
	Live       bool     `json:"live"` // the pods that it was made for live
	AgeSeconds int64    `json:"ageSeconds"`
}

const flowsExample = `  culvertctl flows | grep 192.0.2.9
  culvertctl flows -o json | jq '[.[] | select(.toDst == "10.88.0.3:80")] | length'`

func newFlows(a *app) *cobra.Command {
	var all bool
	header := []string{"PROTO", "SIDE", "SRC", "DST", "TO-SRC", "TO-DST", "ACTION", "FLAGS", "STATE", "AGE"}
	c := newView(a, "flows", "List the flows that the fast path carries, two lines each", flowsExample, header,
		func(set *maps.Set) ([]flowRow, error) { return readFlows(set, a.now, all) })
	c.Flags().BoolVar(&all, "all", false, "also list the dead rows of pods that are gone")
	return c
}

func readFlows(set *maps.Set, now time.Duration, all bool) ([]flowRow, error) {
	var flows []maps.Flow
	for _, table := range []*maps.Flows{set.Flows, set.Halfopen} {
		rows, err := maps.Collect(table.All())
		if err != nil {
			return nil, err
		}
		flows = append(flows, rows...)
	}
	// After the flows: a pod that comes meanwhile has its row before it has flows.
	live, err := set.Pods.Generations()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(flows, func(a, b maps.Flow) int {
		return cmp.Or(cmp.Compare(a.Key.Proto, b.Key.Proto), cmp.Compare(a.Side, b.Side), a.Key.Src.Compare(b.Key.Src), a.Key.Dst.Compare(b.Key.Dst))
	})
	var rows []flowRow
	for _, f := range flows {
		if alive := live.Flow(f); alive || all {
			rows = append(rows, newFlowRow(f, now, alive))
		}
	}
	return rows, nil
}

func newFlowRow(f maps.Flow, now time.Duration, live bool) flowRow {
	return flowRow{
		Proto:      maps.ProtoName(f.Key.Proto),
		Side:       f.Side.String(),
		Src:        f.Key.Src.String(),
		Dst:        f.Key.Dst.String(),
		ToSrc:      f.To.Src.String(),
		ToDst:      f.To.Dst.String(),
		Action:     f.Action.String(),
		Flags:      f.Flags.Names(),
		State:      f.State.Names(),
		HalfOpen:   f.HalfOpen,
		Live:       live,
		AgeSeconds: max(0, int64((now-f.Seen)/time.Second)),
	}
}

func (r flowRow) cells() []string {
	state := r.State
	if r.HalfOpen {
		state = append([]string{"half-open"}, state...)
	}
	if !r.Live {
		state = append([]string{"dead"}, state...)
	}
	age := time.Duration(r.AgeSeconds) * time.Second
	return []string{
		r.Proto, r.Side, r.Src, r.Dst, r.ToSrc, r.ToDst, r.Action,
		strings.Join(r.Flags, ","), strings.Join(state, ","), age.String(),
	}
}
