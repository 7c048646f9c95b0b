// SPDX-License-Identifier: Apache-2.0

// As of culvert: a run is too short to list the node's mounts.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command culvert-ipam is a CNI IPAM plugin for any main plugin. What it gives is kept in a
// kernel map that is pinned beside culvert's own; nothing is written to disk. Stdout carries
// the result or the error, nothing else.
package main

import (
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/culvert-cni/culvert/cmd/internal/address"
	"github.com/culvert-cni/culvert/cmd/internal/plugin"
)

// version is set by the linker.
var version = "unknown"

func main() {
	p := plugin.Plugin{
		Name: "culvert-ipam", Version: version, What: "a CNI IPAM plugin", RunBy: "a main plugin", Coded: address.Coded,
		Verbs: skel.CNIFuncs{Add: add, Del: del, Check: check, GC: gc, Status: nodeStatus},
	}
	os.Exit(p.Main())
}
