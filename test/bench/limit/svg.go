// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/template"
	"time"
)

// Where things are in the picture, in pixels.
const (
	width, height = 760, 520
	left, right   = 90, 740
	plotHeight    = 190
	topRate       = 50
	topRTT        = 290
)

// axis is one with a logarithmic scale.
type axis struct {
	top       float64 // pixel of most
	low, most float64
}

func (a axis) y(v float64) float64 {
	v = min(max(v, a.low), a.most)
	return a.top + plotHeight*(1-math.Log10(v/a.low)/math.Log10(a.most/a.low))
}

var (
	rateAxis = axis{topRate, 1e6, 100e9} // bit/s
	rttAxis  = axis{topRTT, 0.01, 10e3}  // ms
)

func x(at time.Duration) float64 {
	return left + (right-left)*at.Seconds()/plotTime.Seconds()
}

// tick is a line across a plot, or a mark below it.
type tick struct {
	At    float64
	Label string
}

func (a axis) ticks(labels map[float64]string) []tick {
	var all []tick
	for v := a.low; v <= a.most*1.01; v *= 10 {
		for at, label := range labels {
			if math.Abs(at/v-1) < 0.01 {
				all = append(all, tick{a.y(v), label})
			}
		}
	}
	return all
}

func seconds() []tick {
	var all []tick
	for s := range int(plotTime.Seconds()) + 1 {
		all = append(all, tick{x(time.Duration(s) * time.Second), fmt.Sprint(s)})
	}
	return all
}

// steps are the lines of a series of rates, each of which holds for a bucket.
func steps(rates []float64) string {
	var d strings.Builder
	for i, r := range rates {
		from, to := x(time.Duration(i)*bucket), x(time.Duration(i+1)*bucket)
		fmt.Fprintf(&d, "%s%.1f %.1fH%.1f", map[bool]string{true: "M", false: "L"}[i == 0], from, rateAxis.y(r), to)
	}
	return d.String()
}

// line joins the round trips; it is broken where a probe was lost.
func line(samples []sample) string {
	var d strings.Builder
	move := "M"
	for _, s := range samples {
		if s.rtt == 0 || s.at > plotTime {
			move = "M"
			continue
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", move, x(s.at), rttAxis.y(float64(s.rtt)/1e6))
		move = "L"
	}
	return d.String()
}

type curve struct{ Name, Rate, RTT string }

func draw(w io.Writer, traces []trace) error {
	var curves []curve
	for _, t := range traces {
		curves = append(curves, curve{t.name, steps(t.rates), line(t.rtts)})
	}
	return picture.Execute(w, map[string]any{
		"Width": width, "Height": height, "Left": left, "Right": right, "Middle": (left + right) / 2,
		"TopRate": topRate, "BottomRate": topRate + plotHeight, "TopRTT": topRTT, "BottomRTT": topRTT + plotHeight,
		"Limit": rateAxis.y(plotRate), "Seconds": seconds(), "Curves": curves,
		"Rates": rateAxis.ticks(map[float64]string{1e6: "1 Mbit/s", 10e6: "10 Mbit/s", 100e6: "100 Mbit/s", 1e9: "1 Gbit/s", 10e9: "10 Gbit/s", 100e9: "100 Gbit/s"}),
		"RTTs":  rttAxis.ticks(map[float64]string{0.01: "0.01 ms", 0.1: "0.1 ms", 1: "1 ms", 10: "10 ms", 100: "100 ms", 1e3: "1 s", 10e3: "10 s"}),
	})
}

var picture = template.Must(template.New("svg").Funcs(template.FuncMap{
	"add": func(a int, b int) int { return a + b },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img" aria-labelledby="title">
<!-- SPDX-License-Identifier: Apache-2.0. Made by: go run ./test/bench/limit -only plot -doc docs/limits.md -->
<title id="title">A limit of 10 Mbit/s from its first second on: rate and round trip, culvert and the reference plugin</title>
<style>
.paper { fill: #ffffff }
text { font: 12px sans-serif; fill: #1f2328 }
.head { font-weight: bold }
.end { text-anchor: end }
.mid { text-anchor: middle }
path { fill: none; stroke-linejoin: round }
.grid { stroke: #d1d9e0 }
.limit { stroke: #59636e; stroke-dasharray: 2 3 }
.culvert { stroke: #0969da; stroke-width: 2 }
.reference { stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 6 2 }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 }
text { fill: #e6edf3 }
.grid { stroke: #3d444d }
.limit { stroke: #9198a1 }
.culvert { stroke: #58a6ff }
.reference { stroke: #f0883e }
}
</style>
<rect class="paper" width="100%" height="100%"/>
<text class="head" x="{{.Left}}" y="20">One TCP stream into a pod with a limit of 10 Mbit/s and containerd's burst</text>
<text x="{{.Left}}" y="40">rate at the wire, mean of 100 ms</text>
<text x="{{.Left}}" y="{{add .TopRTT -10}}">round trip of a probe of 64 bytes beside it, one every 20 ms</text>
{{- $left := .Left}}{{$right := .Right}}
{{- range .Rates}}
<path class="grid" d="M{{$left}} {{printf "%.1f" .At}}H{{$right}}"/><text class="end" x="{{add $left -8}}" y="{{printf "%.1f" .At}}" dy="4">{{.Label}}</text>
{{- end}}
{{- range .RTTs}}
<path class="grid" d="M{{$left}} {{printf "%.1f" .At}}H{{$right}}"/><text class="end" x="{{add $left -8}}" y="{{printf "%.1f" .At}}" dy="4">{{.Label}}</text>
{{- end}}
{{- $rate := add .BottomRate 16}}{{$rtt := add .BottomRTT 16}}
{{- range .Seconds}}
<text class="mid" x="{{printf "%.1f" .At}}" y="{{$rate}}">{{.Label}}</text><text class="mid" x="{{printf "%.1f" .At}}" y="{{$rtt}}">{{.Label}}</text>
{{- end}}
<text class="mid" x="{{.Middle}}" y="{{add .BottomRTT 34}}">seconds since the first byte</text>
<path class="limit" d="M{{.Left}} {{printf "%.1f" .Limit}}H{{.Right}}"/>
{{- range .Curves}}
<path class="{{.Name}}" d="{{.Rate}}"/>
<path class="{{.Name}}" d="{{.RTT}}"/>
{{- end}}
<path class="culvert" d="M470 36H500"/><text x="506" y="40">culvert</text>
<path class="reference" d="M560 36H590"/><text x="596" y="40">reference</text>
<path class="limit" d="M668 36H698"/><text x="704" y="40">limit</text>
</svg>
`))
