// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

// small is what a pod does beside its bulk flows.
type small struct {
	ping    latency // 64 bytes
	short   latency // connect, 100 bytes there and back, close
	request latency // 1000 bytes there and back on an open connection
}

// fairRow is one of the table: idle, without flows, first.
type fairRow struct {
	rate  uint64
	dir   direction
	flows int
	small small
}

var (
	fairRates = []uint64{10e6, 100e6}
	fairFlows = []int{0, 1, 10, 50}
)

// excess is how much later than idle a ping may come, in ms (B3).
const excess = 50

func (o Options) fairnessPart(ctx context.Context, w io.Writer) error {
	b, err := newBed(ctx, culvert, o.Bin)
	if err != nil {
		return err
	}
	defer b.close()
	var rows []fairRow
	for _, dir := range directions {
		pods, err := b.group(ctx, dir, fairRates, containerd)
		if err != nil {
			return err
		}
		for _, flows := range fairFlows {
			if err := ctx.Err(); err != nil {
				return err
			}
			got := make([]fairRow, len(pods))
			err := parallel(len(pods), func(i int) (err error) {
				got[i] = fairRow{rate: pods[i].rate, dir: dir, flows: flows}
				got[i].small, err = pods[i].beside(flows, o.Time*5/3)
				return err
			})
			if err != nil {
				return err
			}
			rows = append(rows, got...)
		}
	}
	fmt.Fprintf(w, "### Kernel %s\n\n", o.Kernel)
	writeFairness(w, rows)
	return nil
}

// beside measures small requests beside a number of bulk flows, all by TCP and with a host
// outside.
func (p *pod) beside(flows int, window time.Duration) (small, error) {
	way := p.way(outside)
	if flows > 0 {
		load, err := way.stream("tcp", p.rate, flows).Start()
		if err != nil {
			return small{}, err
		}
		defer load.Stop()
		time.Sleep(time.Second)
	} else {
		window /= 3
	}
	to := way.echo.Addr()
	short, err := startRequests(way.from, to, 100, false)
	if err != nil {
		return small{}, err
	}
	request, err := startRequests(way.from, to, 1000, true)
	if err != nil {
		short.stop()
		return small{}, err
	}
	ping, err := startProbe(way.from, way.echo)
	if err == nil {
		time.Sleep(window)
	}
	s := small{short: summary(short.stop()), request: summary(request.stop())}
	if err == nil {
		s.ping = summary(ping.stop(straggler))
	}
	return s, err
}

func writeFairness(w io.Writer, rows []fairRow) {
	fmt.Fprintln(w, "| limit | direction | bulk flows | ping ms p50 / p99 | lost % | connect, 100 B, close: ms p50 / p99 | failed % | 1000 B on an open connection: ms p50 / p99 | failed % | B3 |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, rate := range fairRates {
		var idle small
		for _, r := range rows {
			if r.rate != rate {
				continue
			}
			verdict := ""
			if r.flows == 0 {
				idle = r.small
			} else {
				verdict = stats.Within(0, r.small.ping.P99-idle.ping.P99, excess)
			}
			fmt.Fprintf(w, "| %s | %s | %s |%s%s%s %s |\n", name(r.rate), r.dir, flowCount(r.flows),
				r.small.ping, r.small.short, r.small.request, verdict)
		}
	}
}

func flowCount(n int) string {
	if n == 0 {
		return "idle"
	}
	return fmt.Sprint(n)
}

// String is two columns.
func (l latency) String() string {
	return fmt.Sprintf(" %s / %s | %.1f |", ms(l.P50), ms(l.P99), 100*l.Lost)
}
