// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/ipam"
	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Codes of our own begin at 100, as CNI says.
const (
	codeHostportHeld = 100
	codeAddressHeld  = 101
	codeNameTaken    = 102
	codeNode         = 103 // the node lacks something; STATUS says 50 for it
)

// coded gives an error the code that CNI has for it; one that has a code keeps it, so
// those of the IPAM plugin pass as they are.
func coded(err error) *types.Error {
	var own *types.Error
	var bad netconf.BadValue
	var uplink netdev.NoSuchUplink
	var held podnet.HeldError
	var fault loader.Fault
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &bad):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", err.Error())
	case errors.As(err, &uplink):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", fmt.Sprintf("uplinks: %q: %s", uplink.Name, uplink.Why))
	case errors.As(err, &held) && held.Port:
		return types.NewError(codeHostportHeld, "hostPort is in use", err.Error())
	case errors.As(err, &held):
		return types.NewError(codeAddressHeld, "address is in use", err.Error())
	case errors.Is(err, loader.ErrLocked), errors.Is(err, ipam.ErrNoAnswer), errors.Is(err, maps.ErrFull):
		return types.NewError(types.ErrTryAgainLater, "try again later", err.Error())
	case errors.Is(err, podnet.ErrNameTaken):
		return types.NewError(codeNameTaken, "interface name is taken", err.Error())
	case errors.Is(err, podnet.ErrNoAddress):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", "ipam: "+err.Error())
	case errors.Is(err, ipam.ErrNotFound):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", "ipam.type: "+err.Error())
	case errors.Is(err, loader.ErrNotBPFFS):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", err.Error())
	case errors.Is(err, netdev.ErrNoQdisc):
		return types.NewError(codeNode, "node is not ready", loader.NoShaper().Error()+": "+err.Error())
	case errors.As(err, &fault):
		return types.NewError(codeNode, "node is not ready", err.Error())
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}
