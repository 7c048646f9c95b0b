#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Take down what cluster-up.sh made, or what of it there is.
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
C=$(node_dir cluster)
p=$(cat "$C/pid" 2>/dev/null) || p=
# the number may be another process's by now
if [ -n "$p" ] && tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | grep -q "$LAB/control-plane.sh"; then
  kill -9 "$p"
  wait_for 20 "end of the control plane" sh -c "! kill -0 $p 2>/dev/null"
fi
"$LAB/runtime-down.sh" n1 n2
rm -rf "$C"
