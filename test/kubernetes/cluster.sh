# SPDX-License-Identifier: Apache-2.0
#
# A cluster for who tests on it (sourced after test/lab/lib.sh and check.sh): NODES its nodes' names, CNI as
# network.sh has it, mode kube-proxy's, which also names where the logs go: W/last-MODE.
# shellcheck shell=bash disable=SC2154
AGENT_LABEL=app.kubernetes.io/name=culvertd # as deploy/ has it

lab_lock() { # one lab a machine
  [ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 1; }
  mkdir -p "$W"
  exec 8>"$W/lock"
  flock 8
}
keep_logs() {
  local d
  if [ -z "$mode" ] || [ ! -d "$C" ]; then return; fi
  for d in cluster "${NODES[@]}"; do
    mkdir -p "$W/last-$mode/$d"
    cp "$(node_dir "$d")"/{,cni-bin/,disk/}*.{log,counters} "$W/last-$mode/$d/" 2>/dev/null
    [ "$d" = cluster ] || node_exec "$d" sh -c 'cat /run/log/pods/kube-system_culvertd*/*/*.log' >"$W/last-$mode/$d/culvertd.log" 2>/dev/null
  done
}

prepare() {
  "$root/test/install-deps.sh" base runtime kubernetes
  "$LAB/build-runtime.sh"
  "$LAB/build-kubernetes.sh"
  "$LAB/make-images.sh" kubernetes
  make -s -C "$root" build ref
  if [ "$CNI" = culvert ]; then "$LAB/make-images.sh" culvert; else rm -f "$W/images/culvert.tar"; fi
}

cluster() {
  local n d
  "$LAB/cluster-down.sh" 8>&- # of a run that was killed
  rm -rf "$W/last-$mode"
  for n in "${NODES[@]}"; do
    d=$(node_dir "$n")/cni-bin
    mkdir -p "$d"
    case $CNI in
      culvert) cp "$root/bin/ref/loopback" "$d/" ;; # the runtime's own; the rest is deploy/'s to bring
      *) cp "$root"/bin/ref/* "$root/bin/culvert" "$d/" ;;
    esac
  done
  NODES=${#NODES[@]} "$LAB/cluster-up.sh" "$mode" "$here/network.sh" "$CNI" 8>&- >"$W/cluster-up.log" 2>&1 || { tail -n 20 "$W/cluster-up.log"; return 1; }
  if [ "$CNI" != bridge ]; then record; fi
}
# record: culvert-record.sh in culvert's place. What installed it once does not do so again while the node runs.
record() {
  local n d
  for n in "${NODES[@]}"; do
    d=$(node_dir "$n")/cni-bin
    mv "$d/culvert" "$d/culvert.real"
    cp "$here/culvert-record.sh" "$d/culvert.new"
    mv "$d/culvert.new" "$d/culvert"
  done
}

