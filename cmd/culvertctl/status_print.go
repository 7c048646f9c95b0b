// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

var statusColours = map[string]string{"fault": red, "warning": yellow}

func (s statusView) print(a *app) error {
	t := a.table()
	line := func(key, value string) { t.line(statusColours[key], key, value) }
	line("kernel", s.Kernel)
	line("pins", s.PinPath)
	if s.Loaded {
		s.printLoaded(line)
	} else {
		line("loaded", "no")
	}
	for _, f := range s.Faults {
		line("fault", loader.Fault{What: f.What, Remedy: f.Remedy}.Error())
	}
	for _, f := range s.Warnings {
		line("warning", loader.Fault{What: f.What, Remedy: f.Remedy}.Error())
	}
	return t.flush()
}

func (s statusView) printLoaded(line func(key, value string)) {
	line("loaded", "yes, build "+s.Build)
	for _, name := range sortedKeys(s.Features) {
		line(name, map[bool]string{true: "yes", false: "no"}[s.Features[name]])
	}
	line("shaper", map[string]string{
		"":                             "none",
		maps.ShaperTBF.String():        "tbf with one queue",
		maps.ShaperTBFFqCodel.String(): "tbf with fq_codel",
	}[s.Shaper])
	names := []string{}
	for _, u := range s.Uplinks {
		names = append(names, strings.Join(strings.Fields(fmt.Sprintf("%s (%d) %s %s", u.Name, u.Ifindex, u.Addr4, u.Addr6)), " "))
	}
	line("uplinks", strings.Join(names, ", "))
	line("masquerade ports", strings.Join(s.MasqueradePorts, ", "))
	printRanges(line, "nonmasq", s.Nonmasq)
	printRanges(line, "excluded", s.Excluded)
	for _, table := range sortedKeys(s.Counts) {
		line("rows of "+table, fmt.Sprint(s.Counts[table]))
	}
}

// printRanges prints a range a line.
func printRanges(line func(key, value string), table string, ranges []cidrRange) {
	for _, r := range ranges {
		line(table, fmt.Sprintf("%s (%s)", r.Range, strings.Join(r.Networks, ", ")))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
