#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Those of the CRI's own tests (critest) that have to do with networks, on a containerd 2.x whose only network is
# culvert with culvert-ipam.
#
#   critest.sh [FOCUS]      what is missing is built as in run.sh; images come from labreg, as critest pulls each
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 1; }
: "${FOCUS:=${1:-Networking|portforward|support network|HostNetwork|PodSandbox|sysctls|runtime info}}"
mkdir -p "$W"
exec 8>"$W/lock"
flock 8
N=n1 D=$(node_dir n1)
export REGISTRY=$LAB_NET4.1:5000
registry=

cleanup() {
  local st=$?
  trap - EXIT INT TERM HUP
  set +e
  mkdir -p "$W/last-critest"
  cp "$D"/*.log "$W/last-critest/"
  [ -z "$registry" ] || kill "$registry"
  "$LAB/runtime-down.sh" "$N" 8>&-
  exit "$st"
}
prepare() {
  "$root/test/install-deps.sh" base runtime
  command -v busybox >/dev/null || "$root/test/install-deps.sh" kubernetes
  "$LAB/build-runtime.sh"
  "$LAB/make-images.sh"
  "$LAB/make-images.sh" critest
  CGO_ENABLED=0 go build -C "$root" -o "$W/bin/labreg" ./test/lab/labreg
  make -s -C "$root" build ref
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
prepare
"$LAB/runtime-down.sh" "$N" 8>&- # of a run that was killed
mkdir -p "$D"/{net.d,cni-bin}
cp "$root"/bin/{culvert,culvert-ipam} "$root/bin/ref/loopback" "$D/cni-bin/"
jq -n --arg log "$D/culvert.log" '{cniVersion: "1.1.0", name: "critest", plugins: [{type: "culvert", logFile: $log, ipMasq: true,
  capabilities: {portMappings: true, bandwidth: true},
  ipam: {type: "culvert-ipam", ranges: [[{subnet: "10.200.1.0/24"}], [{subnet: "fd00:200:0:1::/64"}]],
    routes: [{dst: "0.0.0.0/0"}, {dst: "::/0"}]}}]}' >"$D/net.d/10-culvert.conflist"
"$LAB/runtime-up.sh" "$N" 1 8>&-
setpriv --pdeathsig KILL nsenter --net="/run/netns/$SW" "$W/bin/labreg" "$REGISTRY" "$W"/critest/*.tar >"$D/labreg.log" 2>&1 8>&- & registry=$!
st=0
node_exec "$N" env PATH="$W/bin:$PATH" "$W/bin/critest" -runtime-endpoint unix:///run/containerd/containerd.sock \
  -ginkgo.focus "$FOCUS" -ginkgo.no-color >"$D/critest.log" 2>&1 8>&- || st=$?
grep -E '^ *\[FAIL\]' "$D/critest.log" | sort -u || true
grep -E '^(Ran [0-9]+ of|SUCCESS!|FAIL!)' "$D/critest.log"
exit "$st"
