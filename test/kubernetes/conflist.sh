#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# conflist.sh CNI LOG CIDR...: print a node's CNI configuration for its pod ranges, where no agent writes one.
# CNI is static, which is culvert, or bridge, which is the reference plugins in its place.
cni=$1 log=$2
shift 2
jq -n --arg cni "$cni" --arg log "$log" --args '
  {type: "host-local", dataDir: "/run/cni/host-local", ranges: [$ARGS.positional[] | [{subnet: .}]],
    routes: [{dst: "0.0.0.0/0"}, {dst: "::/0"}]} as $ipam |
  {cniVersion: "1.1.0", name: "pods", plugins: (if $cni == "static" then
    [{type: "culvert", logFile: $log, mtu: 1430, ipMasq: true,
      nonMasqueradeCIDRs: ["10.200.0.0/16", "fd00:200::/56"], capabilities: {portMappings: true, bandwidth: true}, ipam: $ipam}]
  else
    [{type: "bridge", bridge: "cni0", mtu: 1430, isGateway: true, hairpinMode: true, ipMasq: false, ipam: $ipam},
     {type: "portmap", snat: true, capabilities: {portMappings: true}},
     {type: "bandwidth", capabilities: {bandwidth: true}}]
  end)}' "$@"
