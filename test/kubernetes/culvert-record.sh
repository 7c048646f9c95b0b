#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Stands in for culvert on a node, with the plugin beside it as NAME.real, and keeps the drop counters:
# DEL takes a pod's away, so before it NAME.counters gets a line with all of them, the devices of living
# pods and the pod in question. Called by hand, without CNI_COMMAND, it does only that.
rows() { bpftool -j map dump pinned /sys/fs/bpf/culvert/v*/maps/"$1"; }
if [ "${CNI_COMMAND:-DEL}" = DEL ]; then
  counters=$(rows counters 2>/dev/null)
  if [ "${counters:-[]}" != '[]' ]; then
    rows pods | jq -c --argjson c "$counters" --arg pod "$CNI_ARGS" '{time: (now | todate), pod: $pod,
      alive: [.[].formatted.value.ifindex], counters: [$c[].formatted]}' >>"$0.counters"
  fi
fi
[ -z "${CNI_COMMAND:-}" ] || exec "$0.real"
