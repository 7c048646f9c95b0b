// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
)

// What a row has room for.
const (
	MaxNetwork   = 63
	MaxContainer = 127
)

// CheckNames checks the names that reach a path, a device or a kernel row. The CNI
// library does, but for their length, before it calls a verb; a name that gets past it in
// another version must still not get past us.
func CheckNames(network, container, ifname string) error {
	if err := CheckNetwork(network); err != nil {
		return err
	}
	if err := utils.ValidateContainerID(container); err != nil {
		return badVariable("CNI_CONTAINERID", container, err.Msg)
	}
	if len(container) > MaxContainer {
		return badVariable("CNI_CONTAINERID", container, fmt.Sprintf("longer than %d bytes", MaxContainer))
	}
	if err := utils.ValidateInterfaceName(ifname); err != nil {
		return badVariable("CNI_IFNAME", ifname, err.Msg)
	}
	// The kernel makes a number of "%d" in the name of a new device.
	if strings.ContainsAny(ifname, "%\x00") {
		return badVariable("CNI_IFNAME", ifname, "holds a % or NUL")
	}
	return nil
}

// CheckNetwork is that part of CheckNames which is about the configuration.
func CheckNetwork(name string) error {
	if err := utils.ValidateNetworkName(name); err != nil {
		return BadValue{"name", fmt.Sprintf("%q", name), err.Msg}
	}
	if len(name) > MaxNetwork {
		return BadValue{"name", fmt.Sprintf("%q", name), fmt.Sprintf("longer than %d bytes", MaxNetwork)}
	}
	return nil
}

func badVariable(name, value, why string) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid "+name, fmt.Sprintf("%q: %s", value, why))
}
