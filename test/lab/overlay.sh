#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# overlay.sh: what flannel makes between nodes, made by hand: direct routes on a shared subnet, else the kernel's
# VXLAN with a route, a neighbour and a forwarding entry a node, one device for each family.
#
#   overlay.sh NAME VNI PORT NODE:INDEX=CIDR4,CIDR6...
#
# NAME begins the devices' names; each holds the first address of the node's range. PORT is UDP's, of IPv4's device;
# IPv6's has the next one.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
name=$1 vni=$2 port=$3; shift 3

# parts of a NODE:INDEX=CIDR4,CIDR6
node() { echo "${1%%:*}"; }
index() { local i=${1#*:}; echo "${i%%=*}"; }
cidr() { local c=${1#*=}; if [ "$2" = 4 ]; then echo "${c%,*}"; else echo "${c#*,}"; fi; } # cidr SPEC FAMILY
mac() { printf '02:cc:%02x:00:00:%02x' "$2" "$(index "$1")"; }                             # mac SPEC FAMILY

device() { # device SPEC FAMILY
  local ns d=$name$2 c overhead=50 bits=32
  ns=$(node_ns "$(node "$1")") c=$(cidr "$1" "$2")
  if [ "$2" = 6 ]; then overhead=70 bits=128; fi
  ip -n "$ns" link add "$d" address "$(mac "$1" "$2")" mtu $((LAB_MTU - overhead)) type vxlan id "$vni" \
    dstport $((port + $2 - 4)) local "$("node$2" "$(index "$1")")" dev eth0 nolearning
  ip -n "$ns" addr add "${c%/*}/$bits" dev "$d"
  ip -n "$ns" link set "$d" up
}
peer() { # peer SPEC FAMILY OTHER: the way to the other's range
  local ns d=$name$2 c to
  ns=$(node_ns "$(node "$1")") c=$(cidr "$3" "$2") to=$("node$2" "$(index "$3")")
  if [ "$("net$2" "$(index "$1")")" = "$("net$2" "$(index "$3")")" ]; then
    ip -n "$ns" route replace "$c" via "$to"
    return
  fi
  ip -n "$ns" neigh replace "${c%/*}" lladdr "$(mac "$3" "$2")" dev "$d" nud permanent
  bridge -n "$ns" fdb replace "$(mac "$3" "$2")" dev "$d" dst "$to"
  ip -n "$ns" route replace "$c" via "${c%/*}" dev "$d" onlink
}
for s; do for f in 4 6; do device "$s" "$f"; done; done
for s; do for o; do
  [ "$s" = "$o" ] || for f in 4 6; do peer "$s" "$f" "$o"; done
done; done
