// SPDX-License-Identifier: Apache-2.0

// Package svg draws the pictures of the benchmarks: panels one below the other, each with
// curves over a horizontal axis or with bars, in colours for a light and a dark page.
package svg

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/template"
)

// Picture is a file.
type Picture struct {
	Title  string // for who cannot see it
	Source string // the command that makes it
	Head   string
	Legend []Label // class and words
	Panels []Panel
}

// Label is a word of the legend, beside a line of the class.
type Label struct{ Class, Text string }

// Panel is one plot. It has curves, or bars.
type Panel struct {
	Title  string
	X, Y   Axis // of bars X alone counts
	XLabel string
	Curves []Curve
	Marks  []Mark
	Bars   []Bar
}

// Mark is a line across a plot, at a value of its Y axis or, among bars, of its X axis.
type Mark struct{ At float64 }

// Curve is drawn with the style of its class: culvert, reference, iptables, nft, floor,
// raw, limit.
type Curve struct {
	Class  string
	Points []Point
	Steps  bool // a value holds until the next point; the last point only ends it
	Dots   bool // mark each point
}

// Point of a curve. Where Y is NaN, the line is broken.
type Point struct{ X, Y float64 }

// Bar is one line of a panel of bars. NaN leaves it empty.
type Bar struct {
	Label, Class string
	Value        float64
}

// Axis goes from Low to Most.
type Axis struct {
	Low, Most float64
	Log       bool
	Ticks     []Tick
}

// Tick is a mark on an axis.
type Tick struct {
	At    float64
	Label string
}

// share is how far along the axis v is, 0 to 1.
func (a Axis) share(v float64) float64 {
	v = min(max(v, a.Low), a.Most)
	if a.Log {
		return math.Log(v/a.Low) / math.Log(a.Most/a.Low)
	}
	return (v - a.Low) / (a.Most - a.Low)
}

// Where things are, in pixels.
const (
	width     = 760
	left      = 90
	barLeft   = 300 // of panels of bars, whose labels are long
	right     = 740
	curveArea = 190
	barArea   = 18 // a bar
	above     = 36 // a panel, for its title
	below     = 44 // for ticks and label
)

// plot is a panel, placed.
type plot struct {
	Panel
	left, top, bottom float64
}

func (p plot) x(v float64) float64 { return p.left + (right-p.left)*p.X.share(v) }
func (p plot) y(v float64) float64 { return p.bottom - (p.bottom-p.top)*p.Y.share(v) }

// Write draws.
func (p Picture) Write(w io.Writer) error {
	var b strings.Builder
	at := 20.0
	fmt.Fprintf(&b, "<text class=\"head\" x=\"20\" y=\"%.0f\">%s</text>\n", at, escape(p.Head))
	if len(p.Legend) > 0 {
		at += 22
		x := 20.0
		for _, l := range p.Legend {
			fmt.Fprintf(&b, "<path class=\"%s\" d=\"M%.0f %.0fH%.0f\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n", l.Class, x, at-4, x+30, x+36, at, escape(l.Text))
			x += 60 + 7*float64(len(l.Text))
		}
	}
	for _, panel := range p.Panels {
		pl := plot{Panel: panel, left: left, top: at + above}
		pl.bottom = pl.top + curveArea
		if len(panel.Bars) > 0 {
			pl.left, pl.bottom = barLeft, pl.top+barArea*float64(len(panel.Bars))
		}
		pl.draw(&b)
		at = pl.bottom + below
	}
	return frame.Execute(w, map[string]any{"Title": escape(p.Title), "Source": p.Source, "Width": width, "Height": int(at) + 4, "Body": b.String()})
}

func (p plot) draw(b *strings.Builder) {
	fmt.Fprintf(b, "<text x=\"20\" y=\"%.0f\">%s</text>\n", p.top-12, escape(p.Title))
	for _, t := range p.X.Ticks {
		if len(p.Bars) > 0 {
			fmt.Fprintf(b, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", p.x(t.At), p.top, p.bottom)
		}
		fmt.Fprintf(b, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", p.x(t.At), p.bottom+16, escape(t.Label))
	}
	if p.XLabel != "" {
		fmt.Fprintf(b, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", (p.left+right)/2, p.bottom+34, escape(p.XLabel))
	}
	if len(p.Bars) > 0 {
		p.drawBars(b)
		return
	}
	for _, t := range p.Y.Ticks {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%.0f %.1fH%d\"/><text class=\"end\" x=\"%.0f\" y=\"%.1f\" dy=\"4\">%s</text>\n",
			p.left, p.y(t.At), right, p.left-8, p.y(t.At), escape(t.Label))
	}
	for _, m := range p.Marks {
		fmt.Fprintf(b, "<path class=\"limit\" d=\"M%.0f %.1fH%d\"/>\n", p.left, p.y(m.At), right)
	}
	for _, c := range p.Curves {
		fmt.Fprintf(b, "<path class=\"%s\" d=\"%s\"/>\n", c.Class, p.line(c))
		if !c.Dots {
			continue
		}
		for _, pt := range c.Points {
			if !math.IsNaN(pt.Y) {
				fmt.Fprintf(b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", c.Class, p.x(pt.X), p.y(pt.Y))
			}
		}
	}
}

func (p plot) line(c Curve) string {
	var d strings.Builder
	move := "M"
	for i, pt := range c.Points {
		if math.IsNaN(pt.Y) {
			move = "M"
			continue
		}
		if c.Steps && i == len(c.Points)-1 {
			break
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", move, p.x(pt.X), p.y(pt.Y))
		if c.Steps {
			fmt.Fprintf(&d, "H%.1f", p.x(c.Points[i+1].X))
		}
		move = "L"
	}
	return d.String()
}

func (p plot) drawBars(b *strings.Builder) {
	for i, bar := range p.Bars {
		y := p.top + barArea*float64(i)
		fmt.Fprintf(b, "<text class=\"end\" x=\"%.0f\" y=\"%.0f\">%s</text>", p.left-8, y+13, escape(bar.Label))
		if !math.IsNaN(bar.Value) {
			fmt.Fprintf(b, "<rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/><text x=\"%.1f\" y=\"%.0f\">%.3g</text>",
				bar.Class, p.left, y+3, max(p.x(bar.Value)-p.left, 1), barArea-6, min(p.x(bar.Value)+5, right-30), y+13, bar.Value)
		}
		b.WriteString("\n")
	}
	for _, m := range p.Marks {
		fmt.Fprintf(b, "<path class=\"limit\" d=\"M%.1f %.1fV%.1f\"/>\n", p.x(m.At), p.top, p.bottom)
	}
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

var frame = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img" aria-labelledby="title">
<!-- SPDX-License-Identifier: Apache-2.0. Made by: {{.Source}} -->
<title id="title">{{.Title}}</title>
<style>
.paper { fill: #ffffff }
text { font: 12px sans-serif; fill: #1f2328 }
.head { font-weight: bold }
.end { text-anchor: end }
.mid { text-anchor: middle }
path { fill: none; stroke-linejoin: round }
.grid { stroke: #d1d9e0 }
path.limit { stroke: #59636e; stroke-dasharray: 2 3 }
path.culvert { stroke: #0969da; stroke-width: 2 }
path.reference, path.nft { stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 6 2 }
path.iptables { stroke: #8250df; stroke-width: 1.5; stroke-dasharray: 2 2 }
path.floor { stroke: #1a7f37; stroke-width: 1.5 }
path.raw { stroke: #59636e }
rect.culvert, circle.culvert { fill: #0969da }
rect.reference, rect.nft, circle.nft, circle.reference { fill: #bc4c00 }
rect.iptables, circle.iptables { fill: #8250df }
rect.floor, circle.floor { fill: #1a7f37 }
rect.raw, circle.raw { fill: #818b98 }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 }
text { fill: #e6edf3 }
.grid { stroke: #3d444d }
path.limit { stroke: #9198a1 }
path.culvert { stroke: #58a6ff }
path.reference, path.nft { stroke: #f0883e }
path.iptables { stroke: #ab7df8 }
path.floor { stroke: #3fb950 }
rect.culvert, circle.culvert { fill: #58a6ff }
rect.reference, rect.nft, circle.nft, circle.reference { fill: #f0883e }
rect.iptables, circle.iptables { fill: #ab7df8 }
rect.floor, circle.floor { fill: #3fb950 }
}
</style>
<rect class="paper" width="100%" height="100%"/>
{{.Body}}</svg>
`))
