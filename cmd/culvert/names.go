// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
)

const (
	maxNetwork   = 63
	maxContainer = 127
)

// checkNames checks the names that reach a path, a device or a kernel row. The CNI
// library does, but for their length, before it calls a verb; a name that gets past it in
// another version must still not get past us.
func checkNames(c *conf, args *skel.CmdArgs) error {
	if err := checkNetwork(c.name); err != nil {
		return err
	}
	if err := utils.ValidateContainerID(args.ContainerID); err != nil {
		return badVariable("CNI_CONTAINERID", args.ContainerID, err.Msg)
	}
	if len(args.ContainerID) > maxContainer {
		return badVariable("CNI_CONTAINERID", args.ContainerID, fmt.Sprintf("longer than %d bytes", maxContainer))
	}
	if err := utils.ValidateInterfaceName(args.IfName); err != nil {
		return badVariable("CNI_IFNAME", args.IfName, err.Msg)
	}
	// The kernel makes a number of "%d" in the name of a new device.
	if strings.ContainsAny(args.IfName, "%\x00") {
		return badVariable("CNI_IFNAME", args.IfName, "holds a % or NUL")
	}
	return nil
}

func checkNetwork(name string) error {
	if err := utils.ValidateNetworkName(name); err != nil {
		return badValue("name", fmt.Sprintf("%q", name), err.Msg)
	}
	if len(name) > maxNetwork {
		return badValue("name", fmt.Sprintf("%q", name), fmt.Sprintf("longer than %d bytes", maxNetwork))
	}
	return nil
}

func badVariable(name, value, why string) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid "+name, fmt.Sprintf("%q: %s", value, why))
}
