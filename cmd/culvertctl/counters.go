// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/maps"
)

const countersHelp = `Count the packets that the datapath dropped, by pod, hook and reason; what is zero is not
listed. A row whose CONTAINER is "-" is of an uplink, of lo, or of a pod that is gone.
The rows of a pod begin with its ADD and go with its DEL.

Reasons:

    source           the source address is not the pod's
    loopback         127/8 or ::1 came from a pod or the wire
    egress_limit     over the pod's egress rate: its shaper is gone
    ports_exhausted  every port tried for the reply was taken
    too_big          the host's own packet to a hostPort is larger than the pod's MTU
    no_room          a row that was just written is gone: the table is churning
    fragment_order   a later fragment of a translated datagram came before its first one
    no_address       a masqueraded packet's uplink has no address of its family
    tunnel_source    it came by the tunnel, not from the node that has its source
    no_remote        it was routed into the tunnel, and no other node has its destination

What a shaper drops to hold a limit is the limit's doing and not here: culvertctl top
shows it, and tc -s qdisc.`

const countersExample = `  culvertctl counters
  culvertctl counters --by reason            # the node in a few lines
  culvertctl counters --pod 10.88.0.3 -o json
  watch -d culvertctl counters               # what grows`

type counterRow struct {
	Container string `json:"container,omitempty"`
	IfName    string `json:"ifname,omitempty"`
	Device    string `json:"device,omitempty"` // of the node
	Hook      string `json:"hook,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`

	by []string
}

var dimensions = []string{"pod", "hook", "reason"}

func newCounters(a *app) *cobra.Command {
	var pod string
	var by []string
	c := &cobra.Command{
		Use:     "counters",
		Short:   "Count what the datapath dropped, by pod, hook and reason",
		Long:    countersHelp,
		Example: countersExample,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, d := range by {
				if !slices.Contains(dimensions, d) {
					return usage("--by %q: use pod, hook, reason, or several of them with commas", d)
				}
			}
			d, err := a.open()
			if err != nil {
				return err
			}
			defer d.Close()
			rows, err := readCounters(d.Maps, pod, by)
			if err != nil {
				return err
			}
			return show(a, counterHeader(by), rows)
		},
	}
	c.Flags().StringVar(&pod, "pod", "", "only those of this pod")
	c.Flags().StringSliceVar(&by, "by", dimensions, "what to tell apart; the rest is summed")
	completeFlag(c, "pod", completePod(a))
	completeFlag(c, "by", cobra.FixedCompletions(dimensions, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func readCounters(set *maps.Set, pod string, by []string) ([]counterRow, error) {
	only, err := podIndex(set, pod)
	if err != nil {
		return nil, err
	}
	counters, err1 := maps.Collect(set.Counters.All())
	owners, err2 := readOwners(set)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	type key struct{ container, ifname, device, hook, reason string }
	sums := map[key]*counterRow{}
	for _, c := range counters {
		if c.Packets == 0 || only != 0 && c.Ifindex != only {
			continue
		}
		r := counterRow{by: by}
		if slices.Contains(by, "pod") {
			i := owners[c.Ifindex]
			r.Container, r.IfName, r.Device = i.Container, i.IfName, metrics.DeviceName(c.Ifindex, i)
		}
		if slices.Contains(by, "hook") {
			r.Hook = c.Hook.String()
		}
		if slices.Contains(by, "reason") {
			r.Reason = c.Reason.String()
		}
		k := key{r.Container, r.IfName, r.Device, r.Hook, r.Reason}
		if sums[k] == nil {
			sums[k] = &r
		}
		sums[k].Packets += c.Packets
		sums[k].Bytes += c.Bytes
	}
	var rows []counterRow
	for _, r := range sums {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b counterRow) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Reason, b.Reason))
	})
	return rows, nil
}

// podIndex is the host side of the pod that is named; 0 if none is.
func podIndex(set *maps.Set, pod string) (int, error) {
	if pod == "" {
		return 0, nil
	}
	i, err := findPod(set, pod)
	return i.Ifindex, err
}

func counterHeader(by []string) []string {
	return counterCells(by, []string{"CONTAINER", "IFNAME", "DEVICE"}, "HOOK", "REASON", "PACKETS", "BYTES")
}

func (r counterRow) cells() []string {
	return counterCells(r.by, []string{short(r.Container), r.IfName, r.Device}, r.Hook, r.Reason,
		strconv.FormatUint(r.Packets, 10), strconv.FormatUint(r.Bytes, 10))
}

func counterCells(by, pod []string, hook, reason string, sums ...string) []string {
	var cells []string
	if slices.Contains(by, "pod") {
		cells = append(cells, pod...)
	}
	if slices.Contains(by, "hook") {
		cells = append(cells, hook)
	}
	if slices.Contains(by, "reason") {
		cells = append(cells, reason)
	}
	return append(cells, sums...)
}
