// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"

	current "github.com/containernetworking/cni/pkg/types/100"
)

// whole is an error if a result names addresses or interfaces that are null. The CNI
// library lets them pass.
func whole(r *current.Result) error {
	if slices.Contains(r.IPs, nil) {
		return errors.New("one of ips is null")
	}
	if slices.Contains(r.Interfaces, nil) {
		return errors.New("one of interfaces is null")
	}
	return nil
}
