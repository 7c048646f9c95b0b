// SPDX-License-Identifier: Apache-2.0

// Package podnet connects a pod and takes it off again: it puts the veth pair, the rows
// of the datapath and the addresses of the IPAM plugin together, and takes them apart.
//
// Setup is a transaction: after an error nothing of it is left. Teardown, and Setup of
// the same owner, clean what a killed Setup left. What belongs to an attachment is known
// by its owner, and by the generation that its rows carry, never by its name alone.
package podnet

import (
	"context"
	"log/slog"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Deps are what podnet works with.
type Deps struct {
	Node     *netdev.Handle   // the node's namespace
	Datapath *loader.Datapath // nil: none is loaded; Teardown then deletes the veth alone
	PinPath  string           // that of Datapath
	IPAM     IPAM
	Log      *slog.Logger
	// OwnRanges, of Teardown: Spec.NonMasquerade with NonMasqueradeOwn, as far as the
	// configuration tells.
	OwnRanges []netip.Prefix
}

// IPAM is the IPAM plugin, for the attachment that the caller works on.
type IPAM interface {
	// Add allocates addresses. After an error it may have allocated some.
	Add(ctx context.Context) (*current.Result, error)
	// Del frees them; it is no error that there are none.
	Del(ctx context.Context) error
}

// Spec says what an attachment is to be.
type Spec struct {
	maps.Owner
	Netns      *netdev.Namespace
	Uplinks    netdev.Uplinks
	MTU        int              // 0: the smallest of the uplinks'
	MAC        net.HardwareAddr // of the pod's interface; nil: derived from the owner
	Hostports  []Hostport
	Loopback   bool // hostPorts answer on the node's loopback addresses too
	Ingress    Rate // to the pod
	Egress     Rate
	Exclude    []netip.Prefix // addresses that no hostPort of any network takes
	Masquerade bool
	// NonMasquerade are the ranges that see the pods' own addresses: with Masquerade.
	NonMasquerade []netip.Prefix
	// NonMasqueradeOwn says that they are the ranges of the pods' own addresses.
	NonMasqueradeOwn bool
	DNS              types.DNS // its fields go over those of the IPAM's result
	SourceCheck      bool      // the pod's frames are held to its own addresses
	// Prev is what the plugins before us made, of a chained attachment; nil as main plugin.
	Prev *current.Result
}

// Hostport is a port of the node that leads to one of the pod.
type Hostport struct {
	Addr    netip.Addr // zero: every local address
	Port    uint16
	Proto   uint8 // IPPROTO_*
	PodPort uint16
}

// Rate is a bandwidth limit as it was asked for, in bit/s and bit; a Rate of 0 is none,
// a Burst of 0 leaves it to us.
type Rate struct{ Rate, Burst uint64 }

// generation is a number that no other attachment since boot has.
func generation() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return uint64(t.Nano()), nil
}

// FakeIPAM is an IPAM for tests: it gives Result or Err.
type FakeIPAM struct {
	Result     *current.Result
	Err        error
	Adds, Dels int
}

// Add implements IPAM.
func (f *FakeIPAM) Add(context.Context) (*current.Result, error) {
	f.Adds++
	return f.Result, f.Err
}

// Del implements IPAM.
func (f *FakeIPAM) Del(context.Context) error {
	f.Dels++
	return nil
}
