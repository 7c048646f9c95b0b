// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// readings are two, two seconds apart: of a pod with limits, a busy one without, and one
// that came between them.
func readings() (before, after metrics.Reading) {
	start := time.Now()
	before = metrics.Reading{
		At:      start,
		Traffic: map[int]netdev.Traffic{1: {RxBytes: 1000, RxPackets: 10, TxBytes: 5}, 2: {}},
		Limits:  map[int]metrics.Limits{1: {Ingress: 1_000_000, Egress: 2_000_000}},
		Drops:   map[int]uint64{1: 5, 2: 1},
		Shaper:  map[int]uint64{1: 7},
	}
	after = before
	after.At = start.Add(2 * time.Second)
	after.Pods = []maps.Iface{
		{Ifindex: 1, Owner: maps.Owner{Container: "limited", IfName: "eth0"}},
		{Ifindex: 2, Owner: maps.Owner{Container: "free", IfName: "eth0"}},
		{Ifindex: 3, Owner: maps.Owner{Container: "new", IfName: "eth0"}},
	}
	after.Traffic = map[int]netdev.Traffic{
		1: {RxBytes: 1000 + 250_000, RxPackets: 210, TxBytes: 5 + 125_000, TxPackets: 100},
		2: {RxBytes: 2_500_000, RxPackets: 4000},
		3: {RxBytes: 9, RxPackets: 1},
	}
	after.Drops = map[int]uint64{1: 6, 2: 1}
	after.Shaper = map[int]uint64{1: 9}
	return before, after
}

func TestTop(t *testing.T) {
	before, after := readings()
	for partial, want := range map[bool]string{
		false: `
CONTAINER  IFNAME  ADDRESS  RX-BIT/S  LIMIT  RX-PKT/S  TX-BIT/S  LIMIT  TX-PKT/S  DROPS
free       eth0    -        10M       -      2000      0         -      0         0
limited    eth0    -        1M        1M     100       500k      2M     50        3
new        eth0    -        -         -      -         -         -      -         0
`,
		// What the fast path hands to a pod without a limit is not counted.
		true: `
CONTAINER  IFNAME  ADDRESS  RX-BIT/S  LIMIT  RX-PKT/S  TX-BIT/S  LIMIT  TX-PKT/S  DROPS
limited    eth0    -        1M        1M     100       500k      2M     50        3
free       eth0    -        -         -      -         0         -      0         0
new        eth0    -        -         -      -         -         -      -         0
`,
	} {
		var out bytes.Buffer
		rows := topRows(&metrics.Meter{Partial: partial}, before, after, 0)
		if err := topShow(&app{out: &out, output: "table"}, rows, topOptions{once: true, interval: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		head, table, _ := strings.Cut(out.String(), "\n")
		if table != want[1:] || !strings.HasSuffix(head, ", drops 3, every 2s") {
			t.Errorf("partial %v:\n%s", partial, out.String())
		}
	}
	if rows := topRows(&metrics.Meter{}, before, after, 1); len(rows) != 1 || rows[0].Container != "limited" || rows[0].urgency() != fatal {
		t.Errorf("one pod: %+v", rows)
	}
	after.Drops, after.Shaper = before.Drops, before.Shaper
	if rows := topRows(&metrics.Meter{}, before, after, 1); rows[0].urgency() != warning {
		t.Errorf("a pod that fills its limit: %+v", rows)
	}
}

// A device or shaper that was made anew begins at 0: no rate, and no drops below 0.
func TestTopMadeAnew(t *testing.T) {
	before, after := readings()
	after.Traffic[1] = netdev.Traffic{RxBytes: 1}
	after.Shaper, after.Drops = map[int]uint64{1: 2}, map[int]uint64{}
	if r := (&metrics.Meter{}).Rates(before, after, 1); r.RxBits != nil || r.TxBits != nil || r.Drops != 2 {
		t.Errorf("%+v", r)
	}
}

func TestRefresh(t *testing.T) {
	for lines, want := range map[int]string{
		0: "\x1b[Ha\x1b[K\nb\x1b[K\nc\x1b[K\n\x1b[J",
		3: "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J", // the cursor takes the last one
		9: "\x1b[Ha\x1b[K\nb\x1b[K\nc\x1b[K\n\x1b[J",
	} {
		if got := refresh("a\nb\nc\n", lines); got != want {
			t.Errorf("%d lines: %q, want %q", lines, got, want)
		}
	}
}
