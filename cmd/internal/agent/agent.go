// SPDX-License-Identifier: Apache-2.0

// Package agent makes a node what the cluster's State says: forwarding, the tunnel, the rows
// of remotes, the routes, and the configuration that the container runtime reads. Everything
// of it is idempotent and is done again every half minute, so that what somebody removed comes
// back. What it has made stays when it ends: no packet and no pod's start waits for it.
//
// It touches the node by small interfaces, which cmd/culvertd fills.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
)

// Tunnelling says which peers are reached by the tunnel.
type Tunnelling string

const (
	TunnelAuto   Tunnelling = "auto"   // those without an address on a subnet of ours
	TunnelAlways Tunnelling = "always" // all
	TunnelNever  Tunnelling = "never"  // none: the network between the nodes knows the way
)

// Config is what the command line says.
type Config struct {
	Tunnel      Tunnelling
	TunnelPort  int
	MTU         int // of pods; 0: that of the uplinks, less what a tunnel takes
	Masquerade  bool
	ClusterCIDR []netip.Prefix // not masqueraded, besides the node's own ranges
	ConfDir     string         // where the runtime reads configurations
	PinPath     string
	CNIVersion  string
}

// Agent is one node's.
type Agent struct {
	Config
	Cluster Cluster
	Node    Node
	Teller  Teller
	Log     *slog.Logger
	Now     func() time.Time

	wired       bool // the tunnel and the own ranges' routes were there once
	tunnelIndex int
	conf        []byte          // of the culvert plugin, as it was written last
	faults      map[step]string // that have been told
	amiss       []kube.Fault    // of the cluster's objects, that have been told
	lastWhy     string          // the condition, as it was written
	lastUID     types.UID       // to which Node
	lastUp      time.Time       // and when

	mu     sync.Mutex
	report Report
}

const (
	resync      = 30 * time.Second
	firstRetry  = time.Second
	longestWait = resync
)

// Run works until ctx ends. It leaves everything as it is.
func (a *Agent) Run(ctx context.Context) {
	wait := firstRetry
	for {
		next := resync
		if err := a.Sync(ctx); err != nil {
			next = wait
			wait = min(2*wait, longestWait)
		} else {
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-a.Cluster.Changed():
		case <-time.After(next):
		}
	}
}

// errWaiting says that nothing is known of the cluster yet.
var errWaiting = errors.New("the API server has not told yet what this node has")

// Sync makes the node what the State says, once. It does all that can be done in spite of
// errors; the steps' own have been told.
func (a *Agent) Sync(ctx context.Context) error {
	r := a.begin()
	state, known := a.Cluster.State()
	if known {
		r.state = &state
		a.apply(r, state)
		a.tellFaults(state.Faults)
	} else {
		r.fault(stepCluster, errWaiting)
	}
	a.end(ctx, r)
	return r.err()
}

// apply is the list of steps. Rows come before routes, so that a packet which a route leads
// to the tunnel finds its row; the configuration comes last, as pods may start from then on.
func (a *Agent) apply(r *round, state kube.State) {
	uplinks, err := a.Node.Uplinks()
	if r.fault(stepUplinks, err) {
		return
	}
	plan := makePlan(a.Config, state, uplinks)
	r.fault(stepRanges, plan.unreached())
	v4, v6 := plan.families()
	r.fault(stepForward, a.Node.Forward(v4, v6))
	tunnel := a.tunnel(r, &plan)
	_, err = a.Node.SyncRemotes(plan.Remotes)
	rows := !r.fault(stepRemotes, err)
	_, err = a.Node.SyncRoutes(plan.Routes)
	routes := !r.fault(stepRoutes, err)
	a.wired = a.wired || tunnel && rows && routes
	if a.wired {
		a.writeConflist(r, plan)
	}
	r.plan = &plan
}

// tunnel makes the device if a peer needs it. One that is there stays, as pods' connections
// may use it, and is kept right. Without it what would go there is left out.
func (a *Agent) tunnel(r *round, plan *Plan) bool {
	there, err := a.Node.TunnelExists()
	if err != nil || !there && !plan.NeedsTunnel {
		return !r.fault(stepTunnel, err)
	}
	ifindex, err := a.Node.EnsureTunnel(plan.Tunnel)
	if !r.fault(stepTunnel, err) {
		a.tunnelIndex = ifindex
	}
	if a.tunnelIndex == 0 {
		plan.withoutTunnel()
		return false
	}
	plan.by(a.tunnelIndex) // also after an error: what is there is better than nothing
	return err == nil
}
