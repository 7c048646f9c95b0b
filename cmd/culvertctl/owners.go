// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/culvert-cni/culvert/maps"
)

// owners finds the attachment that a row belongs to.
type owners map[int]maps.Iface

func readOwners(set *maps.Set) (owners, error) {
	o := owners{}
	for i, err := range set.Ifaces.All() {
		if err != nil {
			return nil, err
		}
		o[i.Ifindex] = i
	}
	return o, nil
}

// of gives the attachment of a device if it is still the one of that generation; else
// an empty one.
func (o owners) of(ifindex int, generation uint64) maps.Iface {
	if i := o[ifindex]; i.Generation == generation {
		return i
	}
	return maps.Iface{}
}
