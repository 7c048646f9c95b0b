// SPDX-License-Identifier: Apache-2.0

// Package kube is what culvertd knows of and tells the Kubernetes API: which ranges this node
// has, claimed from pools or given by the cluster, which the other nodes have, and who has what
// address. It touches nothing of the node itself; package agent makes the node what a State says.
package kube

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Range is a part of the cluster's addresses and where it is.
type Range struct {
	Prefix netip.Prefix
	Node   string
	Via    []netip.Addr // the node's own addresses
	Pool   string       // empty: the cluster gave it to the node
}

// Lease is an address that a pod of this node holds, or held last.
type Lease struct {
	Addr      netip.Addr
	Container string // id of the sandbox
	Released  bool
	Since     time.Time // held, or released, since then
}

// Peer is a node and its own addresses.
type Peer struct {
	Name  string
	Addrs []netip.Addr
}

// Fault is what an administrator should know: Reason is one word, for a condition or an Event.
type Fault struct{ Reason, Message string }

// State is what the node should be, as far as the API server knows. Lists are sorted: an equal
// State is equal by reflect.DeepEqual.
type State struct {
	Node       Peer                      // this one
	UID        types.UID                 // of its Node, or of the last: another one has none of its conditions
	Peers      []Peer                    // every other Node
	Ranges     []netip.Prefix            // where new pods get addresses from; empty while another node has not let go of them
	Draining   []netip.Prefix            // this node's as well, not given from any more; a single address is that of a pod which lives here
	Pools      map[string][]netip.Prefix // what this node has of pools that annotations name
	Namespaces map[string][]string       // pools by namespace
	Reserved   []netip.Prefix            // never given here
	Remote     []Range                   // every other node's; no two of one prefix
	Faults     []Fault
}
