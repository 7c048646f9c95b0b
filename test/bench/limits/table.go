// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// rates in bit/s. Those of a group are measured side by side, as together they are little.
var rates = [][]uint64{{1e6, 10e6, 100e6}, {1e9}}

// tries of a cell: the machine may do something else for a moment.
const tries = 3

// row is one of the table: a limit towards one peer.
type row struct {
	rate     uint64
	dir      direction
	peer     peer
	idle     latency
	tcp, udp figures
}

// table measures every rate, direction, protocol and peer, with the burst that
// containerd asks for.
func (o Options) table(ctx context.Context) ([]row, error) {
	b, err := newBed(ctx, culvert, o.Bin)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var rows []row
	for _, group := range o.groups() {
		for _, dir := range directions {
			pods, err := b.group(ctx, dir, group, containerd)
			if err != nil {
				return nil, err
			}
			for _, to := range peers {
				r, err := o.beside(ctx, pods, to)
				if err != nil {
					return nil, err
				}
				rows = append(rows, r...)
			}
		}
	}
	return rows, nil
}

// groups are the rates to measure side by side: none in an emulated machine, which hardly
// fills one.
func (o Options) groups() [][]uint64 {
	if !o.Emulated {
		return rates
	}
	var alone [][]uint64
	for _, rate := range slices.Concat(rates...) {
		alone = append(alone, []uint64{rate})
	}
	return alone
}

func (b *bed) group(ctx context.Context, dir direction, rates []uint64, burst uint64) ([]*pod, error) {
	var pods []*pod
	for _, rate := range rates {
		p, err := b.limited(ctx, dir, rate, burst)
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// beside measures pods towards one peer, side by side.
func (o Options) beside(ctx context.Context, pods []*pod, to peer) ([]row, error) {
	rows := make([]row, len(pods))
	err := parallel(len(pods), func(i int) (err error) {
		rows[i] = row{rate: pods[i].rate, dir: pods[i].dir, peer: to}
		rows[i].idle, err = pods[i].idle(to)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, proto := range []string{"tcp", "udp"} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := parallel(len(pods), func(i int) error {
			return rows[i].measure(proto, o.Emulated, func() (figures, error) {
				return pods[i].load(to, proto, o.timesOf(pods[i].rate))
			})
		})
		if err != nil {
			return nil, err
		}
	}
	for _, r := range rows {
		fmt.Fprintln(o.Progress, r.markdown(o.Emulated))
	}
	return rows, nil
}

// measure tries until the figures are within the bounds.
func (r *row) measure(proto string, emulated bool, load func() (figures, error)) (err error) {
	f, judge := &r.tcp, (*row).tcpVerdict
	if proto == "udp" {
		f, judge = &r.udp, (*row).udpVerdict
	}
	for try := range tries {
		*f, err = load()
		f.tries = try + 1
		if err != nil || judge(r, emulated) == "ok" {
			break
		}
	}
	return err
}

func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (o Options) writeTable(w io.Writer, rows []row) {
	fmt.Fprintln(w, "| limit | direction | peer | idle ms | TCP wire | payload | RTT ms p50 / p99 | lost % | UDP wire | RTT ms p50 / p99 | lost % | |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range sorted(rows) {
		fmt.Fprintln(w, r.markdown(o.Emulated))
	}
}

// sorted is by rate, then direction.
func sorted(rows []row) []row {
	var out []row
	for _, rate := range slices.Concat(rates...) {
		for _, r := range rows {
			if r.rate == rate {
				out = append(out, r)
			}
		}
	}
	return out
}

func (r row) markdown(emulated bool) string {
	return fmt.Sprintf("| %s | %s | %s | %s | %.3f | %.3f | %s / %s | %.1f | %.3f | %s / %s | %.1f | %s |",
		name(r.rate), r.dir, r.peer, ms(r.idle.P50), r.tcp.Wire, r.tcp.Goodput, ms(r.tcp.RTT.P50), ms(r.tcp.RTT.P99), 100*r.tcp.RTT.Lost,
		r.udp.Wire, ms(r.udp.RTT.P50), ms(r.udp.RTT.P99), 100*r.udp.RTT.Lost, r.verdict(emulated))
}

// ms has two digits that mean something.
func ms(v float64) string {
	switch {
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
