// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/cmd/internal/address"
	"github.com/culvert-cni/culvert/cmd/internal/ipam"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// ownIPAM is the type of the IPAM plugin that needs no process of its own, nor its binary.
const ownIPAM = "culvert-ipam"

// ipamPlugin is the IPAM plugin of a configuration.
type ipamPlugin interface {
	podnet.IPAM
	Exists() error
	Check(ctx context.Context) error
	Status(ctx context.Context) error
	GC(ctx context.Context) error
}

func (s *session) ipam() ipamPlugin { return s.ipamWith(s.args.StdinData) }

// ipamWith gives the plugin another configuration than the runtime's.
func (s *session) ipamWith(stdin []byte) ipamPlugin {
	if s.conf.ipamType != ownIPAM {
		return &ipam.Plugin{Type: s.conf.ipamType, Stdin: stdin, Args: s.args.Args, Path: s.args.Path}
	}
	return inProcess{address.Call{
		Stdin: stdin, Args: s.args.Args, Container: s.args.ContainerID, IfName: s.args.IfName, Netns: s.args.Netns,
		Log: s.log, Pods: podnet.Witnesses,
	}}
}

// inProcess calls culvert-ipam without its binary. What it does takes no time to speak of, so
// that a context which ends is seen before and after.
type inProcess struct{ call address.Call }

func (inProcess) Exists() error { return nil }

func (p inProcess) Add(ctx context.Context) (*current.Result, error) {
	p.call.Stop = ctx.Done()
	r, _, err := p.call.Add()
	return r, withCode(err)
}

func (p inProcess) Del(context.Context) error    { return withCode(p.call.Del()) }
func (p inProcess) Check(context.Context) error  { return withCode(p.call.Check()) }
func (p inProcess) Status(context.Context) error { return withCode(p.call.Status()) }
func (p inProcess) GC(context.Context) error     { return withCode(p.call.GC()) }

// withCode gives an error the code that the binary would end with.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	e := *address.Coded(err)
	e.Msg = fmt.Sprintf("IPAM plugin %s: %s", ownIPAM, e.Msg)
	return &e
}
