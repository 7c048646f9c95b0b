// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-cni/culvert/maps"
)

// What callers tell apart: package main gives each its CNI code.
var (
	// ErrNoAddress says that the IPAM plugin gave none.
	ErrNoAddress = errors.New("the IPAM plugin gave no address")
	// ErrNameTaken says that the pod has an interface of that name that is not ours.
	ErrNameTaken = errors.New("interface name is taken")
)

// HeldError says that a live attachment has what another one asks for.
type HeldError struct {
	What   string // "hostPort *:8080/tcp", "address 10.1.2.3"
	Holder maps.Owner
	Port   bool // a hostPort
}

func (e HeldError) Error() string { return fmt.Sprintf("%s is held by %s", e.What, e.Holder) }

func addressHeld(a netip.Addr, holder maps.Owner) error {
	return HeldError{What: "address " + a.String(), Holder: holder}
}
