// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"slices"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// Cluster is the latest of what the API server says; package kube has it.
type Cluster interface {
	// State is false as long as it is not known.
	State() (kube.State, bool)
	// Changed is sent to after State may have changed.
	Changed() <-chan struct{}
}

// Uplink is a device of the node that leads to other nodes.
type Uplink struct {
	Name  string
	Index int
	MTU   int
	Addrs []netip.Prefix // with the host's bits, and the length of the subnet
}

// Node is the node's network.
type Node interface {
	Uplinks() ([]Uplink, error)
	// Forward switches forwarding on where it is off.
	Forward(v4, v6 bool) error
	// TunnelExists says whether the device is there.
	TunnelExists() (bool, error)
	// EnsureTunnel makes the device, with the programs on it, and gives its number.
	EnsureTunnel(netdev.TunnelConfig) (ifindex int, err error)
	// SyncRoutes makes these the routes to other nodes' ranges, and no others: it sets them in this
	// order, and then removes.
	SyncRoutes([]netdev.RemoteRoute) (changed int, err error)
	// SyncRemotes makes these the rows of remotes, and no others, as SyncRoutes does.
	SyncRemotes([]maps.Remote) (changed int, err error)
	// Ready is nil if a pod could start with this configuration, else what STATUS would say.
	Ready(conf []byte) error
}

// Teller tells people what goes wrong, and that it is over. package kube's Events are one.
type Teller interface {
	Warn(reason, what string)
	Tell(reason, what string)
	// Up is the node's condition: nil once it can start pods, else why not.
	Up(ctx context.Context, why error) error
}

// FakeCluster is a Cluster for tests.
type FakeCluster struct {
	Now   kube.State
	Known bool
	Ping  chan struct{}
}

// State implements Cluster.
func (f *FakeCluster) State() (kube.State, bool) { return f.Now, f.Known }

// Changed implements Cluster.
func (f *FakeCluster) Changed() <-chan struct{} { return f.Ping }

// FakeNode is a Node for tests. Fail has an error for a method's name; Calls are their names.
type FakeNode struct {
	Links   []Uplink
	Tunnel  *netdev.TunnelConfig // as it was made
	Routes  []netdev.RemoteRoute
	Remotes []maps.Remote
	Fail    map[string]error
	Calls   []string
}

func (f *FakeNode) called(name string) error {
	f.Calls = append(f.Calls, name)
	return f.Fail[name]
}

// Uplinks implements Node.
func (f *FakeNode) Uplinks() ([]Uplink, error) { return f.Links, f.called("Uplinks") }

// Forward implements Node.
func (f *FakeNode) Forward(_, _ bool) error { return f.called("Forward") }

// TunnelExists implements Node.
func (f *FakeNode) TunnelExists() (bool, error) { return f.Tunnel != nil, nil }

// EnsureTunnel implements Node.
func (f *FakeNode) EnsureTunnel(c netdev.TunnelConfig) (int, error) {
	if err := f.called("EnsureTunnel"); err != nil {
		return 0, err
	}
	f.Tunnel = &c
	return 7, nil
}

// SyncRoutes implements Node.
func (f *FakeNode) SyncRoutes(r []netdev.RemoteRoute) (int, error) {
	f.Routes = slices.Clone(r)
	return 0, f.called("SyncRoutes")
}

// SyncRemotes implements Node.
func (f *FakeNode) SyncRemotes(r []maps.Remote) (int, error) {
	f.Remotes = slices.Clone(r)
	return 0, f.called("SyncRemotes")
}

// Ready implements Node.
func (f *FakeNode) Ready([]byte) error { return f.called("Ready") }

// FakeTeller is a Teller for tests.
type FakeTeller struct {
	Said []string
	Why  []error // of each Up
}

// Warn implements Teller.
func (f *FakeTeller) Warn(reason, _ string) { f.Said = append(f.Said, "Warning "+reason) }

// Tell implements Teller.
func (f *FakeTeller) Tell(reason, _ string) { f.Said = append(f.Said, "Normal "+reason) }

// Up implements Teller.
func (f *FakeTeller) Up(_ context.Context, why error) error {
	f.Why = append(f.Why, why)
	return nil
}
