// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Codes of our own; those of culvert mean the same.
const (
	codeAddressHeld = 101
	codeNode        = 103 // the node lacks something; STATUS says 50 for it
	codeNoneLeft    = 104
	codeNotHeld     = 105 // CHECK
)

// Coded gives an error the code that CNI has for it; one that has a code keeps it.
func Coded(err error) *types.Error {
	var own *types.Error
	var bad netconf.BadValue
	var held HeldError
	var fault loader.Fault
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &bad):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", err.Error())
	case errors.Is(err, ErrUndecodable):
		return types.NewError(types.ErrDecodingFailure, ErrUndecodable.Error(), err.Error())
	case errors.As(err, &held):
		return types.NewError(codeAddressHeld, "address is in use", err.Error())
	case errors.Is(err, ErrNotHeld):
		return types.NewError(codeNotHeld, ErrNotHeld.Error(), err.Error())
	case errors.Is(err, ErrNoneLeft):
		return types.NewError(codeNoneLeft, ErrNoneLeft.Error(), err.Error())
	case errors.Is(err, ErrCooling), errors.Is(err, ErrNoRange), errors.Is(err, loader.ErrLocked), errors.Is(err, loader.ErrOtherLayout), errors.Is(err, maps.ErrFull):
		return types.NewError(types.ErrTryAgainLater, "try again later", err.Error())
	case errors.Is(err, loader.ErrNotBPFFS):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration", "ipam.pinPath: "+err.Error())
	case errors.As(err, &fault):
		return types.NewError(codeNode, "node is not ready", err.Error())
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}

// unavailable is error 50 for what keeps an ADD from succeeding, in one sentence.
func unavailable(err error) error {
	var fault loader.Fault
	switch {
	case err == nil:
		return nil
	case errors.Is(err, loader.ErrOtherLayout): // the next ADD mends that
		return nil
	case errors.As(err, &fault), errors.Is(err, ErrNoneLeft), errors.Is(err, ErrNoRange):
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	return err
}
