#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Take down what cluster-up.sh made, or what of it there is.
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
control_plane_stop
mapfile -t names < <(find "$W/run" -mindepth 1 -maxdepth 1 -name 'n[0-9]*' -printf '%f\n' 2>/dev/null)
"$LAB/runtime-down.sh" "${names[@]}"
rm -rf "$(node_dir cluster)"
