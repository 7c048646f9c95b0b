#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Take down what up.sh made, or what of it there is.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$here/lib.sh"
if [ -z "${OWN_DOCKER:-}" ]; then where kind delete cluster --name "$KIND_CLUSTER"; exit; fi
if node_alive "$DOCKER_NODE"; then where timeout 60 kind delete cluster --name "$KIND_CLUSTER" || true; fi
"$LAB/runtime-down.sh" "$DOCKER_NODE"
cg_clean docker
rm -f "$K/kubeconfig"
