// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/limits"
	"github.com/culvert-cni/culvert/test/bench/path"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/bench/svg"
	"github.com/culvert-cni/culvert/test/bench/verbs"
)

const source = "make bench"

// draw writes a picture for each that the runs have figures for.
func (o options) draw(runs map[string]*report.Run) error {
	pictures := map[string]svg.Picture{}
	if r := runs[path.Name]; r != nil {
		pictures["path"], pictures["hostports"] = pathPicture(r), hostPortsPicture(r)
	}
	if r := runs[verbs.Name]; r != nil {
		pictures["verbs"] = verbsPicture(r)
	}
	if r := runs[limits.Name]; r != nil {
		pictures["limits"] = limitsPicture(r)
	}
	for name, p := range pictures {
		var b strings.Builder
		if err := p.Write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.out, name+".svg"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// when is the end of a picture's head.
func when(r *report.Run) string {
	return fmt.Sprintf("%s, kernel %s", r.Date.Format("2006-01-02"), r.Kernel)
}

// class is the style of a path, by who makes it.
func class(name string) string {
	for _, c := range []string{"culvert", "iptables", "nft", "floor"} {
		if strings.Contains(name, c) {
			return c
		}
	}
	return map[bool]string{true: "raw", false: "reference"}[strings.Contains(name, "raw") || strings.Contains(name, "routed")]
}

// pathPicture has a bar a path, as ratio to the raw one, for IPv4. Those beside other
// hostPorts have a picture of their own.
func pathPicture(r *report.Run) svg.Picture {
	p := svg.Picture{Title: "What a packet's path costs, as ratio to a raw veth pair", Source: source,
		Head: "What a packet's path costs, x raw veth pair (IPv4, " + when(r) + ")"}
	for _, m := range []struct {
		metric report.Metric
		title  string
	}{{path.RR, "request and response on an open connection, p50"}, {path.CRR, "connect, request, response, close, p50"},
		{path.UDP, "CPU time a datagram of 64 bytes"}, {path.Stream, "CPU time a GB of one TCP stream"}} {
		panel := svg.Panel{Title: m.title, X: svg.Axis{Low: 0, Most: 2}, Marks: []svg.Mark{{At: 1}}}
		for v := 0.0; v <= panel.X.Most; v += 0.5 {
			panel.X.Ticks = append(panel.X.Ticks, svg.Tick{At: v, Label: fmt.Sprint(v)})
		}
		for _, name := range r.Part.Paths {
			if v := r.Part.ToBase(name, m.metric); name != r.Part.Base && !strings.HasSuffix(name, path.IPv6) && !strings.Contains(name, "others") && !math.IsNaN(v) {
				panel.Bars = append(panel.Bars, svg.Bar{Label: name, Class: class(name), Value: v})
			}
		}
		p.Panels = append(p.Panels, panel)
	}
	return p
}

// curves is a panel with a curve a chain, of named points.
func curves(title string, x, y svg.Axis, chains []string, points func(chain string) []svg.Point) svg.Panel {
	panel := svg.Panel{Title: title, X: x, Y: y}
	for _, chain := range chains {
		panel.Curves = append(panel.Curves, svg.Curve{Class: chain, Points: points(chain), Dots: true})
	}
	return panel
}

var chains = []string{"iptables", "nft", "culvert"}

var legend = []svg.Label{{Class: "culvert", Text: "culvert"}, {Class: "nft", Text: "reference plugins, nft"}, {Class: "iptables", Text: "reference plugins, iptables"}}

func decades(low, most float64, unit string) svg.Axis {
	a := svg.Axis{Low: low, Most: most, Log: true}
	for v := low; v <= most*1.01; v *= 10 {
		a.Ticks = append(a.Ticks, svg.Tick{At: v, Label: fmt.Sprintf("%g%s", v, unit)})
	}
	return a
}

func counts(values []int) svg.Axis {
	a := svg.Axis{Most: float64(values[len(values)-1])}
	for _, v := range values {
		a.Ticks = append(a.Ticks, svg.Tick{At: float64(v), Label: fmt.Sprint(v)})
	}
	return a
}

func hostPortsPicture(r *report.Run) svg.Picture {
	p := svg.Picture{Title: "Time of a new connection through a hostPort, by number of other hostPorts", Source: source, Legend: legend,
		Head: "A new connection by hostPort, x raw veth pair (" + when(r) + ")"}
	for _, family := range []string{"", path.IPv6} {
		if math.IsNaN(r.Part.Value(r.Part.Base+family, path.CRR)) {
			continue
		}
		panel := curves(map[bool]string{true: "IPv4", false: "IPv6"}[family == ""], counts(path.Others), decades(1, 100, " x"), chains, func(chain string) []svg.Point {
			var all []svg.Point
			for _, n := range path.Others {
				all = append(all, svg.Point{X: float64(n), Y: r.Part.ToBase(path.HostPort(chain, n)+family, path.CRR)})
			}
			return all
		})
		panel.XLabel = "other hostPorts"
		p.Panels = append(p.Panels, panel)
	}
	return p
}

func verbsPicture(r *report.Run) svg.Picture {
	p := svg.Picture{Title: "CPU time of ADD, CHECK and DEL, by number of pods on the node", Source: source, Legend: legend,
		Head: "CPU time of a call, by pods that are there (" + when(r) + ")"}
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		panel := curves(verb, counts(verbs.Pods), decades(1, 1000, " ms"), chains, func(chain string) []svg.Point {
			var all []svg.Point
			for _, n := range verbs.Pods {
				all = append(all, svg.Point{X: float64(n), Y: r.Part.Value(verbs.Path(chain, n, 1), verbs.CPU(verb))})
			}
			return all
		})
		p.Panels = append(p.Panels, panel)
	}
	p.Panels[2].XLabel = "pods"
	return p
}

func limitsPicture(r *report.Run) svg.Picture {
	p := svg.Picture{Title: "Round trip beside a TCP stream that fills a limit, by its rate", Source: source,
		Legend: []svg.Label{{Class: "culvert", Text: "culvert"}, {Class: "reference", Text: "reference plugin"}},
		Head:   "Round trip beside a TCP stream that fills a limit, p50 (" + when(r) + ")"}
	x := svg.Axis{Low: 1e6, Most: 1e9, Log: true}
	for _, rate := range limits.Rates() {
		x.Ticks = append(x.Ticks, svg.Tick{At: float64(rate), Label: fmt.Sprintf("%d", rate/1e6)})
	}
	for _, dir := range []string{"ingress", "egress"} {
		p.Panels = append(p.Panels, curves(dir, x, decades(0.1, 1000, " ms"), []string{"reference", "culvert"}, func(chain string) []svg.Point {
			var all []svg.Point
			for _, rate := range limits.Rates() {
				all = append(all, svg.Point{X: float64(rate), Y: r.Part.Value(limits.Path(chain, dir, rate), limits.RTT)})
			}
			return all
		}))
	}
	p.Panels[1].XLabel = "limit, Mbit/s"
	return p
}
