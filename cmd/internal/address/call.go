// SPDX-License-Identifier: Apache-2.0

package address

import (
	"fmt"
	"log/slog"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// Call is one call of the plugin as CNI has it. Its verbs decode what they need of Stdin
// before they touch anything; Coded gives their errors a code.
type Call struct {
	Stdin     []byte
	Args      string // CNI_ARGS
	Container string
	IfName    string
	Netns     string
	Log       *slog.Logger
	Pods      func(*netdev.Handle) ([]maps.Iface, error) // as in Plugin
}

// Add gives addresses. version is that of the configuration, for who prints the result.
func (c *Call) Add() (r *current.Result, version string, err error) {
	conf, err := Parse(c.Stdin, c.Args)
	if err == nil {
		err = c.checkNames(conf)
	}
	if err != nil {
		return nil, "", err
	}
	r, err = c.plugin(conf).Add()
	return r, conf.CNIVersion, err
}

// Del gives them back; nothing that it does not find is an error.
func (c *Call) Del() error {
	conf, err := ParseForDelete(c.Stdin)
	if err != nil {
		return err
	}
	return c.plugin(conf).Del()
}

// Check repairs nothing.
func (c *Call) Check() error {
	conf, err := Parse(c.Stdin, c.Args)
	if err == nil {
		err = c.checkNames(conf)
	}
	if err != nil {
		return err
	}
	return c.plugin(conf).Check()
}

// GC gives back what the attachments have that the configuration does not name.
func (c *Call) GC() error {
	conf, err := ParseForGC(c.Stdin)
	if err == nil {
		err = checkNetwork(conf.Network)
	}
	if err != nil {
		return err
	}
	return c.plugin(conf).GC()
}

// Status says whether an Add would succeed; error 50 has the reason.
func (c *Call) Status() error {
	conf, err := Parse(c.Stdin, c.Args)
	if err != nil {
		return err
	}
	return unavailable(c.plugin(conf).Status())
}

func (c *Call) plugin(conf *Conf) *Plugin {
	return &Plugin{
		Conf: conf, Netns: c.Netns, Log: c.Log, Pods: c.Pods,
		Owner: maps.Owner{Network: conf.Network, Container: c.Container, IfName: c.IfName},
	}
}

// checkNames checks the names that reach a row.
func (c *Call) checkNames(conf *Conf) error {
	const maxContainer = 127
	if err := checkNetwork(conf.Network); err != nil {
		return err
	}
	if err := utils.ValidateContainerID(c.Container); err != nil {
		return badVariable("CNI_CONTAINERID", c.Container, err.Msg)
	}
	if len(c.Container) > maxContainer {
		return badVariable("CNI_CONTAINERID", c.Container, fmt.Sprintf("longer than %d bytes", maxContainer))
	}
	if err := utils.ValidateInterfaceName(c.IfName); err != nil {
		return badVariable("CNI_IFNAME", c.IfName, err.Msg)
	}
	return nil
}

func checkNetwork(name string) error {
	const maxNetwork = 63
	why := ""
	if err := utils.ValidateNetworkName(name); err != nil {
		why = err.Msg
	} else if len(name) > maxNetwork {
		why = fmt.Sprintf("longer than %d bytes", maxNetwork)
	}
	if why != "" {
		return BadValue{"name", fmt.Sprintf("%q", name), why}
	}
	return nil
}

func badVariable(name, value, why string) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid "+name, fmt.Sprintf("%q: %s", value, why))
}
