// SPDX-License-Identifier: Apache-2.0

package address

import (
	"log/slog"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
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
	Stop      <-chan struct{}                            // closed when we are told to stop waiting; may be nil
}

// Add gives addresses. version is that of the configuration, for who prints the result.
func (c *Call) Add() (r *current.Result, version string, err error) {
	conf, err := Parse(c.Stdin, c.Args)
	if err == nil {
		err = netconf.CheckNames(conf.Network, c.Container, c.IfName)
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
	conf, err := ParseForCheck(c.Stdin)
	if err == nil {
		err = netconf.CheckNames(conf.Network, c.Container, c.IfName)
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
		err = netconf.CheckNetwork(conf.Network)
	}
	if err != nil {
		return err
	}
	return c.plugin(conf).GC()
}

// Status says whether an Add would succeed; error 50 has the reason.
func (c *Call) Status() error {
	conf, err := ParseForStatus(c.Stdin)
	if err != nil {
		return unavailable(err)
	}
	return unavailable(c.plugin(conf).Status())
}

func (c *Call) plugin(conf *Conf) *Plugin {
	return &Plugin{
		Conf: conf, Netns: c.Netns, Log: c.Log, Pods: c.Pods, Stop: c.Stop,
		Owner: maps.Owner{Network: conf.Network, Container: c.Container, IfName: c.IfName},
	}
}
