#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# conflist.sh CNI LOG NODE CIDR...: print a node's CNI configuration for its pod ranges. CNI is culvert, or
# bridge, which is the reference plugins in its place, to tell what is culvert's from what is the lab's.
cni=$1 log=$2
shift 3
jq -n --arg cni "$cni" --arg log "$log" --args '
  {type: "host-local", dataDir: "/run/cni/host-local", ranges: [$ARGS.positional[] | [{subnet: .}]],
    routes: [{dst: "0.0.0.0/0"}, {dst: "::/0"}]} as $ipam |
  {cniVersion: "1.1.0", name: "pods", plugins: (if $cni == "culvert" then
    [{type: "culvert", logFile: $log, ipMasq: false, capabilities: {portMappings: true, bandwidth: true}, ipam: $ipam}]
  else
    [{type: "bridge", bridge: "cni0", isGateway: true, hairpinMode: true, ipMasq: false, ipam: $ipam},
     {type: "portmap", snat: true, capabilities: {portMappings: true}},
     {type: "bandwidth", capabilities: {bandwidth: true}}]
  end)}' "$@"
