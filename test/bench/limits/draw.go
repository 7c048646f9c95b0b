// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/culvert-cni/culvert/test/bench/svg"
)

var (
	rateAxis = svg.Axis{Low: 1e6, Most: 100e9, Log: true, Ticks: []svg.Tick{
		{At: 1e6, Label: "1 Mbit/s"}, {At: 10e6, Label: "10 Mbit/s"}, {At: 100e6, Label: "100 Mbit/s"},
		{At: 1e9, Label: "1 Gbit/s"}, {At: 10e9, Label: "10 Gbit/s"}, {At: 100e9, Label: "100 Gbit/s"}}}
	rttAxis = svg.Axis{Low: 0.01, Most: 10e3, Log: true, Ticks: []svg.Tick{ // ms
		{At: 0.01, Label: "0.01 ms"}, {At: 0.1, Label: "0.1 ms"}, {At: 1, Label: "1 ms"}, {At: 10, Label: "10 ms"},
		{At: 100, Label: "100 ms"}, {At: 1e3, Label: "1 s"}, {At: 10e3, Label: "10 s"}}}
)

func draw(w io.Writer, traces []trace) error {
	seconds := svg.Axis{Most: plotTime.Seconds()}
	for s := range int(plotTime.Seconds()) + 1 {
		seconds.Ticks = append(seconds.Ticks, svg.Tick{At: float64(s), Label: fmt.Sprint(s)})
	}
	rate := svg.Panel{Title: "rate at the wire, mean of 100 ms", X: seconds, Y: rateAxis, Marks: []svg.Mark{{At: plotRate}}}
	rtt := svg.Panel{Title: "round trip of a probe of 64 bytes beside it, one every 20 ms", X: seconds, Y: rttAxis, XLabel: "seconds since the first byte"}
	for _, t := range traces {
		rate.Curves = append(rate.Curves, svg.Curve{Class: t.name, Points: rates100ms(t.rates), Steps: true})
		rtt.Curves = append(rtt.Curves, svg.Curve{Class: t.name, Points: roundTrips(t.rtts)})
	}
	return svg.Picture{
		Title:  "A limit of 10 Mbit/s from its first second on: rate and round trip, culvert and the reference plugin",
		Source: "go run ./test/bench/limit -only plot -doc docs/limits.md",
		Head:   "One TCP stream into a pod with a limit of 10 Mbit/s and containerd's burst",
		Legend: []svg.Label{{Class: "culvert", Text: "culvert"}, {Class: "reference", Text: "reference"}, {Class: "limit", Text: "limit"}},
		Panels: []svg.Panel{rate, rtt},
	}.Write(w)
}

// rates100ms are points of steps, with one more that ends them.
func rates100ms(rates []float64) []svg.Point {
	var all []svg.Point
	for i, r := range append(rates, math.SmallestNonzeroFloat64) {
		all = append(all, svg.Point{X: (time.Duration(i) * bucket).Seconds(), Y: r})
	}
	return all
}

// roundTrips in ms; the line is broken where a probe was lost, and ends with the picture.
func roundTrips(samples []sample) []svg.Point {
	var all []svg.Point
	for _, s := range samples {
		p := svg.Point{X: s.at.Seconds(), Y: float64(s.rtt) / 1e6}
		if s.rtt == 0 || s.at > plotTime {
			p.Y = math.NaN()
		}
		all = append(all, p)
	}
	return all
}
