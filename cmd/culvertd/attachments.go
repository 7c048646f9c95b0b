// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/address"
	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// attachments are those of our network: rows of ifaces, and tenants of addresses. Who is alive
// is not judged here, as podnet.GC would: an agent in a container does not see every path that a
// namespace is kept at.
type attachments struct {
	pinPath string
	log     *slog.Logger
}

// processNetns begins the path of a namespace that is a process's. Runtimes with CRI keep pods'
// namespaces mounted; a container whose namespace is its process's was started beside the
// runtime, as nerdctl does on any network whose configuration it finds, and is no sandbox.
const processNetns = "/proc/"

// List implements agent.Attachments. Those of containers beside the runtime are not among them.
func (a *attachments) List() ([]agent.Attachment, error) {
	opts := loader.Options{PinPath: a.pinPath}
	dp, err := loader.Open(opts)
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dp.Close()
	var list []agent.Attachment
	others := map[maps.Owner]bool{}
	add := func(o maps.Owner, age time.Duration) {
		if o.Network == agent.NetworkName && !others[o] {
			list = append(list, agent.Attachment{Owner: o, Age: age})
		}
	}
	for row, err := range dp.Maps.Ifaces.All() {
		if err != nil {
			return nil, err
		}
		others[row.Owner] = strings.HasPrefix(row.NetnsPath, processNetns)
		add(row.Owner, clock(unix.CLOCK_BOOTTIME)-time.Duration(row.Generation))
	}
	table, err := loader.OpenAddresses(opts)
	if errors.Is(err, loader.ErrNotLoaded) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	defer table.Close()
	for row, err := range table.Tenants() {
		if err != nil {
			return nil, err
		}
		add(row.Owner, clock(unix.CLOCK_MONOTONIC)-row.Since)
	}
	return list, nil
}

// Remove implements agent.Attachments.
func (a *attachments) Remove(ctx context.Context, o maps.Owner) error {
	handle, err := netdev.Open()
	if err != nil {
		return err
	}
	defer handle.Close()
	dp, err := loader.Open(loader.Options{PinPath: a.pinPath, Netlink: handle, Log: a.log})
	if err != nil {
		return err
	}
	defer dp.Close()
	d := &podnet.Deps{Node: handle, Datapath: dp, PinPath: a.pinPath, Log: a.log, IPAM: releaser{a, o}}
	return podnet.Teardown(ctx, d, o)
}

// releaser is the IPAM plugin for a DEL.
type releaser struct {
	*attachments
	owner maps.Owner
}

func (releaser) Add(context.Context) (*current.Result, error) {
	return nil, errors.New("the collector adds nothing")
}

func (r releaser) Del(context.Context) error {
	conf, err := json.Marshal(map[string]any{"cniVersion": agent.LatestCNI, "name": r.owner.Network, "type": "culvert", "pinPath": r.pinPath})
	if err != nil {
		return err
	}
	call := address.Call{Stdin: conf, Container: r.owner.Container, IfName: r.owner.IfName, Log: r.log, Pods: podnet.Witnesses}
	return call.Del()
}
