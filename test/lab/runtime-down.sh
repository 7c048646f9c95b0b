#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Take nodes down: runtime-down.sh [-k] NODE...; with the last one goes the switch.
# The end of a node's PID 1 ends everything in its PID namespace, as a machine that loses power.
# -k keeps disk and directory, for runtime-up.sh: a reboot.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
keep=
if [ "${1:-}" = -k ]; then keep=1; shift; fi
for N; do
  D=$(node_dir "$N")
  if node_alive "$N"; then
    p=$(node_pid "$N")
    kill -9 "$p" 2>/dev/null || true
    wait_for 20 "end of $N" sh -c "! kill -0 $p 2>/dev/null" || true
  fi
  ip -n "$SW" link del "p-$N" 2>/dev/null || true
  ip netns del "$(node_ns "$N")" 2>/dev/null || true
  cg_clean "culvertlab/$N"
  [ -z "$keep" ] || continue
  if mountpoint -q "$D/disk"; then umount -l "$D/disk"; fi
  rm -rf "$D"
done
if [ -n "$keep" ]; then exit; fi
if ! ip netns list | grep '^culvertlab-' | grep -qv "^$SW"; then sw_down; cg_clean culvertlab; fi
