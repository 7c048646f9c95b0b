#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build the container runtime from Go modules: containerd 2.x (with its shim and ctr) and crictl;
# runc is Debian's. About two minutes the first time; afterwards W/bin is taken as it is.
#
#   build-runtime.sh        W (default /tmp/culvert-lab), JOBS, CONTAINERD_VERSION, CRITOOLS_VERSION
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
: "${CONTAINERD_VERSION:=v2.4.2}" "${CRITOOLS_VERSION:=v1.37.0}" "${JOBS:=2}"
mkdir -p "$W/bin" "$W/src"
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=mod

# wrap NAME MODULE VERSION: enter a tiny module that requires MODULE@VERSION with that module's own
# go.mod pins, which is the set of dependencies it was tested with.
wrap() {
  local d=$W/src/$1-$3 mod
  mkdir -p "$d"; cd "$d"
  [ ! -f .ready ] || return 0
  mod=$(go mod download -json "$2@$3" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
  sed -e "s#^module .*#module lab.local/$1#" -e '/=> \.\.\?\//d' "$mod" >go.mod
  go mod edit -require="$2@$3"
  : >go.sum
  touch .ready
}
build() { # build VERSION PACKAGE VERSION_VARIABLE
  local out=$W/bin/${2##*/} s=$SECONDS
  if [ "$(cat "$out.version" 2>/dev/null)" = "$1" ] && [ -x "$out" ]; then return; fi
  nice go build -p "$JOBS" -ldflags "-s -w -X $3=$1" -o "$out.new" "$2"
  mv "$out.new" "$out"; echo "$1" >"$out.version"
  echo "built ${2##*/} $1 in $((SECONDS - s)) s"
}
c=github.com/containerd/containerd/v2
wrap containerd "$c" "$CONTAINERD_VERSION"
for p in containerd containerd-shim-runc-v2 ctr; do build "$CONTAINERD_VERSION" "$c/cmd/$p" "$c/version.Version"; done
c=sigs.k8s.io/cri-tools
wrap cri-tools "$c" "$CRITOOLS_VERSION"
build "$CRITOOLS_VERSION" "$c/cmd/crictl" "$c/pkg/version.Version"
