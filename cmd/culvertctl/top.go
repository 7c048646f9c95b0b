// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
)

const topHelp = `Show what each pod receives (RX) and sends (TX) now, the busiest first, with its limits
and the packets that were dropped since the line before: by the datapath (culvertctl
counters tells why), or by the shaper that holds the limit of what the pod receives.

Rates are those of the pod's own device, with Ethernet headers; a packet that the
kernel has not segmented yet counts once. A pod that fills a limit by TCP shows about
0.96 of it. "-" for RX: a kernel that does not count what the fast path hands to a pod
without a limit (before Linux 6.7 and the stable releases of that time).

On a terminal the table refreshes until Ctrl-C; elsewhere a table is printed each time.`

const topExample = `  culvertctl top
  culvertctl top --pod 10.88.0.3 --interval 5s
  culvertctl top --once -o json | jq -r 'max_by(.rxBits).container'`

type topRow struct {
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	Addresses []string `json:"addresses"`
	metrics.Rates
	RxLimit uint64 `json:"rxLimit"` // bit/s; 0: none
	TxLimit uint64 `json:"txLimit"`
}

var topHeader = []string{"CONTAINER", "IFNAME", "ADDRESS", "RX-BIT/S", "LIMIT", "RX-PKT/S", "TX-BIT/S", "LIMIT", "TX-PKT/S", "DROPS"}

type topOptions struct {
	interval time.Duration
	once     bool
	pod      string
}

func newTop(a *app) *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:     "top",
		Short:   "Show the pods' rates, limits and drops, again and again",
		Long:    topHelp,
		Example: topExample,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.interval < 100*time.Millisecond {
				return usage("--interval %v: use 100ms or more", o.interval)
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, unix.SIGTERM)
			defer stop()
			return top(ctx, a, o)
		},
	}
	c.Flags().BoolVar(&o.once, "once", false, "print one table and end")
	c.Flags().DurationVar(&o.interval, "interval", time.Second, "between two tables")
	c.Flags().StringVar(&o.pod, "pod", "", "only this pod")
	completeFlag(c, "pod", completePod(a))
	return c
}

func top(ctx context.Context, a *app, o topOptions) error {
	only, err := topPod(a, o.pod)
	if err != nil {
		return err
	}
	m, err := metrics.NewMeter(a.open)
	if err != nil {
		return err
	}
	defer m.Close()
	before, err := m.Read()
	for err == nil && pause(ctx, o.interval) {
		var after metrics.Reading
		if after, err = m.Read(); err == nil {
			err = topShow(a, topRows(m, before, after, only), o)
		}
		if o.once {
			break
		}
		before = after
	}
	return err
}

func topPod(a *app, pod string) (int, error) {
	d, err := a.open()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return podIndex(d.Maps, pod)
}

func topRows(m *metrics.Meter, before, after metrics.Reading, only int) []topRow {
	rows := []topRow{}
	for _, i := range after.Pods {
		if only != 0 && i.Ifindex != only {
			continue
		}
		limit := after.Limits[i.Ifindex]
		rows = append(rows, topRow{
			Container: i.Container, IfName: i.IfName, Addresses: texts(i.Addrs),
			Rates: m.Rates(before, after, i.Ifindex), RxLimit: limit.Ingress, TxLimit: limit.Egress,
		})
	}
	slices.SortFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.bits(), a.bits()), cmp.Compare(a.Container, b.Container), cmp.Compare(a.IfName, b.IfName))
	})
	return rows
}

func (r topRow) bits() uint64 { return value(r.RxBits) + value(r.TxBits) }

func value(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

func (r topRow) cells() []string {
	number := func(n *uint64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatUint(*n, 10)
	}
	limit := func(n uint64) string {
		if n == 0 {
			return ""
		}
		return bits(n)
	}
	address := ""
	if len(r.Addresses) > 0 {
		address = r.Addresses[0]
	}
	return []string{
		short(r.Container), r.IfName, address, bitsOr(r.RxBits, ""), limit(r.RxLimit), number(r.RxPackets),
		bitsOr(r.TxBits, ""), limit(r.TxLimit), number(r.TxPackets), strconv.FormatUint(r.Drops, 10),
	}
}

func (r topRow) urgency() urgency {
	switch {
	case r.Drops > 0:
		return fatal
	case fills(value(r.RxBits), r.RxLimit), fills(value(r.TxBits), r.TxLimit):
		return warning
	}
	return calm
}

// topShow prints one table: on a terminal over the one before, as far as the lines go.
func topShow(a *app, rows []topRow, o topOptions) error {
	if a.output != "table" {
		return show(a, topHeader, rows)
	}
	var screen bytes.Buffer
	onto := *a
	onto.out = &screen
	var rx, tx, drops uint64
	for _, r := range rows {
		rx, tx, drops = rx+value(r.RxBits), tx+value(r.TxBits), drops+r.Drops
	}
	fmt.Fprintf(&screen, "%s  pods %d, rx %sbit/s, tx %sbit/s, drops %d, every %v\n",
		time.Now().Format(time.TimeOnly), len(rows), bits(rx), bits(tx), drops, o.interval)
	if err := show(&onto, topHeader, rows); err != nil {
		return err
	}
	if o.once || !terminal(a.out) {
		if !o.once {
			screen.WriteByte('\n')
		}
		_, err := screen.WriteTo(a.out)
		return err
	}
	_, err := io.WriteString(a.out, refresh(screen.String(), height(a.out)))
	return err
}

// refresh is a screen of text over the one before: home, each line to its end, the rest.
func refresh(text string, lines int) string {
	all := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if lines > 1 && len(all) >= lines {
		all = all[:lines-1]
	}
	text = strings.TrimSuffix(strings.Join(all, ""), "\n")
	return "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[K\n\x1b[J"
}

// height is that of the terminal; 0 if it does not say.
func height(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Row)
}

// pause waits for the time between two readings; false: the user has had enough.
func pause(ctx context.Context, interval time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(interval):
		return true
	}
}
