// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// cell is a situation in which the candidates are compared.
type cell struct {
	fromPod bool
	rate    uint64 // bit/s
	flows   int
	gso     bool
}

func (c cell) String() string {
	way, size := "to-pod", "packets"
	if c.fromPod {
		way = "from-pod"
	}
	if c.gso {
		size = "GSO"
	}
	return fmt.Sprintf("%s %dM %d %s", way, c.rate/1e6, c.flows, size)
}

// cells are the combinations of what the options list that match only.
func (o options) cells() ([]cell, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	var all []cell
	for _, way := range strings.Split(o.directions, ",") {
		for _, rate := range strings.Split(o.rates, ",") {
			for _, flows := range strings.Split(o.flows, ",") {
				for _, gso := range strings.Split(o.gso, ",") {
					mbit, err1 := strconv.ParseUint(rate, 10, 16)
					n, err2 := strconv.Atoi(flows)
					if err1 != nil || err2 != nil || mbit == 0 || n < 1 ||
						way != "to-pod" && way != "from-pod" || gso != "on" && gso != "off" {
						return nil, fmt.Errorf("what is the cell %q, %q Mbit/s, %q flows, GSO %q?", way, rate, flows, gso)
					}
					c := cell{way == "from-pod", mbit * 1e6, n, gso == "on"}
					if only.MatchString(c.String()) {
						all = append(all, c)
					}
				}
			}
		}
	}
	return all, nil
}
