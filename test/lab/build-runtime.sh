#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build the container runtime from Go modules: containerd 2.x (with its shim and ctr), crictl and critest;
# runc is Debian's. About two minutes the first time; afterwards W/bin is taken as it is.
#
#   build-runtime.sh        W (default /tmp/culvert-lab), JOBS, CONTAINERD_VERSION, CRITOOLS_VERSION
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
. "$LAB/gomod.sh"
: "${CONTAINERD_VERSION:=v2.4.2}" "${CRITOOLS_VERSION:=v1.37.0}"
c=github.com/containerd/containerd/v2
wrap containerd "$c" "$CONTAINERD_VERSION"
for p in containerd containerd-shim-runc-v2 ctr; do build "$CONTAINERD_VERSION" "$c/cmd/$p" "-X $c/version.Version=$CONTAINERD_VERSION"; done
c=sigs.k8s.io/cri-tools
wrap cri-tools "$c" "$CRITOOLS_VERSION"
build "$CRITOOLS_VERSION" "$c/cmd/crictl" "-X $c/pkg/version.Version=$CRITOOLS_VERSION"
build "$CRITOOLS_VERSION" "$c/cmd/critest.test" "-X $c/pkg/version.Version=$CRITOOLS_VERSION" critest
