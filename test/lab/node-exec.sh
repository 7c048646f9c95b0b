#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-exec.sh NODE CMD...: run CMD in a node; NODE "sw" is another host on the node network.
# "node-exec.sh n1 crictl pods" works: crictl and ctr are in its PATH and know the socket.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
n=$1; shift
export PATH="$W/bin:$PATH" CRI_CONFIG_FILE="$W/run/$n/crictl.yaml"
if [ "$n" = sw ]; then sw_exec "$@"; else node_exec "$n" "$@"; fi
