#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make bench-cluster: what culvert costs a cluster, as ratios of interleaved rounds in several clusters, since one
# differs from the next by more than its rounds do; the tables go to docs/bench-cluster.md.
#
#   start   three nodes, PODS (100) pods on each created at once: time until the last is ready, with culvert and
#           with bridge + host-local, in turns on the same nodes, each first as often as the other
#   vxlan   round trips and one TCP stream (cubic) between pods of nodes in different subnets: culvert's tunnel, and
#           what flannel has, bridge and the kernel's VXLAN with a route a node, on two hosts beside the nodes
#
#   bench.sh [PART...]      vxlan and start; the other part's figures stay as they were measured. CLUSTERS (4), and in each
#                           ROUNDS (1 of start, 3 of vxlan); PODS, MODE (nftables), KEEP, UP (one cluster then), DOC as faults.sh has them
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$root/test/lab/check.sh"
. "$here/smoke.sh"
. "$here/cluster.sh"
: "${MODE:=nftables}" "${PODS:=100}" "${DOC:=$root/docs/bench-cluster.md}" "${CLUSTERS:=4}"
: "${CNI:=culvert}"
NODES=(n1 n2 n3) C=$(node_dir cluster)
T=$(mktemp -d) RESULTS=$W/bench

record() { :; } # as it is installed, without what tests put in its place

cleanup() {
  local st=$?
  trap - EXIT INT TERM HUP
  set +e
  mode=bench keep_logs
  rivals_down
  rm -rf "$T"
  if [ -n "${KEEP:-}" ]; then echo "# kept: test/lab/cluster-down.sh ends it"; exit "$st"; fi
  "$LAB/cluster-down.sh" 8>&-
  exit "$st"
}

# result PART ROUND WHAT SIDE VALUE
result() {
  jq -cn --arg r "$2" --arg w "$3" --arg s "$4" --argjson v "$5" --arg b "$build" '{round: $r, what: $w, side: $s, value: $v, build: $b}' >>"$RESULTS/$1"
}

# --- start
many() { # many: all nodes' pods, as one list
  local n i
  for n in "${NODES[@]}"; do for ((i = 0; i < PODS; i++)); do cat <<Y; done; done
---
apiVersion: v1
kind: Pod
metadata: {name: many-$n-$i, labels: {many: "yes"}}
spec:
  nodeName: $n
  terminationGracePeriodSeconds: 0
  enableServiceLinks: false
  automountServiceAccountToken: false
  containers: [{name: main, image: $IMAGE, command: [/bin/labpod, pause]}]
Y
}
# use CNI: which configuration is the first that containerd finds
use() {
  local n d
  for n in "${NODES[@]}"; do
    d=$(node_dir "$n")/net.d
    case $1 in
      culvert) rm -f "$d/00-bridge.conflist" ;;
      bridge)
        # ranges that no node has: these pods answer nobody but their node
        "$here/conflist.sh" bridge - 10.201.0.0/24 fd00:200:0:1ff::/64 >"$d/bridge.new"
        mv "$d/bridge.new" "$d/00-bridge.conflist"
        ;;
    esac
    wait_for 20 "$n: $1" uses "$n" "$1"
  done
}
uses() { # uses NODE CNI
  "$LAB/node-exec.sh" "$1" crictl info | jq -e --arg t "$2" '[.cniconfig.Networks[].Config.Plugins[].Network.type] | index($t)' >/dev/null
}
start_round() { # start_round CNI: prints seconds
  local s
  use "$1"
  s=$(date +%s)
  kubectl create -f "$T/many.yaml" >/dev/null
  kubectl wait --for=condition=Ready pod -l many=yes --timeout=600s >/dev/null
  kubectl get pods -l many=yes -o json |
    jq --argjson s "$s" '[.items[].status.conditions[] | select(.type == "Ready") | .lastTransitionTime | fromdate] | max - $s'
  kubectl delete pod -l many=yes --now --wait >/dev/null 2>&1
}
part_start() { # part_start CLUSTER
  local r c n order
  for n in "${NODES[@]}"; do cp "$root"/bin/ref/{bridge,host-local,portmap,bandwidth} "$(node_dir "$n")/cni-bin/"; done
  many >"$T/many.yaml"
  for ((r = 0; r < ${ROUNDS:-1}; r++)); do
    order=(culvert bridge)
    if (((r + $1) % 2)); then order=(bridge culvert); fi
    for c in "${order[@]}"; do
      start_round "$c" >"$T/seconds"
      echo "# start $1.$r: $c: $(cat "$T/seconds") s"
      result start "$1.$r" start "$c" "$(cat "$T/seconds")"
    done
  done
  use culvert
}

# --- vxlan. Two hosts beside the nodes: on one node, each would meet the other's programs and rules.
RIVALS=(r1:101 r3:103)
rivals_down() { "$LAB/runtime-down.sh" r1 r3; }
rivals_up() {
  local r n i
  for r in "${RIVALS[@]}"; do
    n=${r%:*} i=${r#*:}
    "$LAB/runtime-up.sh" "$n" "$i"
    node_exec "$n" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    # kube-proxy's rules are in the way of flannel's packets too
    node_exec n1 nft list ruleset | node_exec "$n" nft -f -
    cp "$root"/bin/ref/{bridge,host-local,loopback,portmap,bandwidth,cnitool} "$(node_dir "$n")/cni-bin/"
    "$here/conflist.sh" bridge - "10.201.$i.0/24" "fd00:200:0:1$((i % 100))::/64" >"$(node_dir "$n")/net.d/10-rival.conflist"
    node_exec "$n" ip netns add pod
    node_exec "$n" ip -n pod link set lo up # without ::1 a Go program knows no IPv6
    node_exec "$n" env CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d /opt/cni/bin/cnitool add pods /run/netns/pod >"$T/$n"
  done
  "$LAB/overlay.sh" rival 42 8473 "r1:101=10.201.101.0/24,fd00:200:0:11::/64" "r3:103=10.201.103.0/24,fd00:200:0:13::/64"
}
# both sides' programs are started alike, in the pods' networks
serve_in() { node_exec "$1" setsid nsenter --net="$2" sh -c 'exec "$0" serve >/dev/null 2>&1 </dev/null &' "$W/bin/labpod"; } # serve_in NODE NETNS
from() { # from SIDE ARG...: labpod on the near side
  local side=$1; shift
  if [ "$side" = culvert ]; then in_pod bench-n1 "$@"; else node_exec r1 nsenter --net=/run/netns/pod "$W/bin/labpod" "$@"; fi
}
vxlan_round() { # vxlan_round ROUND
  local side i what v
  for i in 0 1; do for what in rr stream; do for side in culvert bridge; do
    local -n to=${side}_at
    case $what in
      rr) v=$(from "$side" rr "${to[i]}:8082" 2) ;;
      stream) v=$(from "$side" push "${to[i]}:8083" 3) ;;
    esac
    result vxlan "$1" "$what IPv$((i * 2 + 4))" "$side" "$v"
  done; done; done
}
part_vxlan() { # part_vxlan CLUSTER
  local n r
  for n in n1 n3; do cat <<Y; done | kubectl apply -f - >/dev/null
---
apiVersion: v1
kind: Pod
metadata: {name: bench-$n}
spec:
  nodeName: $n
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: $IMAGE, command: [/bin/labpod, pause]}]
Y
  kubectl wait --for=condition=Ready pod/bench-n1 pod/bench-n3 --timeout=60s >/dev/null
  find_pods
  rivals_up
  # shellcheck disable=SC2034 # by name in vxlan_round
  read -ra culvert_at <<<"$(addresses '{.status.podIPs[*].ip}' pod/bench-n3)"
  # shellcheck disable=SC2034
  read -ra bridge_at <<<"$(jq -r '[.ips[].address | sub("/.*"; "")] | sort | map(if test(":") then "[\(.)]" else . end) | join(" ")' "$T/r3")"
  serve_in n3 "${pod_netns[bench-n3]}"
  serve_in r3 /run/netns/pod
  check "culvert's pods reach each other" wait_for 20 "culvert" from culvert get "http://${culvert_at[0]}:8080/"
  check "the rival's pods reach each other" wait_for 20 "rival" from bridge get "http://${bridge_at[0]}:8080/"
  [ "$failed" = 0 ] || return
  for ((r = 0; r < ${ROUNDS:-3}; r++)); do vxlan_round "$1.$r"; done
  rivals_down
  kubectl delete pod bench-n1 bench-n3 --now >/dev/null 2>&1
}

# table: medians of the rounds, and the median and the range of the rounds' ratios
table() {
  jq -rs 'def median: sort | if length == 0 then null else (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 end;
    def short: if . > 1e9 then "\((. / 1e7 | round) / 100) G" elif . > 1e6 then "\((. / 1e4 | round) / 100) M" else "\(.)" end;
    "| | culvert | bridge | ratio | of the rounds | culvertctl |", "| --- | --- | --- | --- | --- | --- |",
    (group_by(.what)[] | .[0] as {$what, $build}
      | [group_by(.round)[] | {c: (map(select(.side == "culvert"))[0].value), b: (map(select(.side == "bridge"))[0].value)}]
      | map(.c / .b * 1000 | round / 1000) as $ratios
      | "| \($what) | \(map(.c) | median | short) | \(map(.b) | median | short) | \($ratios | median * 1000 | round / 1000) | \($ratios | min) to \($ratios | max), \(length) | \($build) |")' "$RESULTS"/*
}

lab_lock
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
mode=$MODE parts=("$@")
[ $# -gt 0 ] || parts=(vxlan start)
if [ -n "${UP:-}" ]; then CLUSTERS=1; else prepare; fi
mkdir -p "$RESULTS"
build=$("$root/bin/culvertctl" version | sed -n '1s/^culvertctl \([^,]*\),.*/\1/p')
for p in "${parts[@]}"; do rm -f "$RESULTS/$p"; done
for ((k = 0; k < CLUSTERS; k++)); do
  [ -n "${UP:-}" ] || check "cluster $k comes up" cluster
  [ "$failed" = 0 ] || exit 1
  for p in "${parts[@]}"; do "part_$p" "$k"; done
done
table | tee "$T/table"
if [ -e "$RESULTS/vxlan" ] && [ -e "$RESULTS/start" ]; then
  {
    cat "$here/bench.md"
    echo "Kubernetes $(cat "$W/bin/kubelet.version"), kube-proxy in $MODE mode, kernel $(uname -r), $(nproc) processors."
    echo
    cat "$T/table"
  } >"$DOC"
fi
KEPT=$W/last-bench summary
