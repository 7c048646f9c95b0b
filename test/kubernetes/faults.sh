#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make test-faults: what pods notice of faults of nodes, agents and the API server: a cluster of three nodes, the
# third behind a router, a pod on each that asks those of every node without end (labpod count), and one fault
# after the other. The table goes to docs/kubernetes-faults.md.
#
#   faults.sh [FAULT...]      none agent_killed agent_replaced api_down power_loss clean_reboot ranges_change
#
#   MODE=nftables   kube-proxy's;  SPAN=60  seconds of the faults that last
#   KEEP=1          leave the cluster up;  UP=1  take the one that is up
#   DOC=FILE        where the table goes; all faults must be asked for
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$root/test/lab/check.sh"
. "$here/smoke.sh"
. "$here/cluster.sh"
. "$here/traffic.sh"
: "${MODE:=nftables}" "${SPAN:=60}"
: "${CNI:=culvert}"
NODES=(n1 n2 n3) C=$(node_dir cluster)
T=$(mktemp -d) ROWS=$T/rows
all=(none agent_killed agent_replaced api_down power_loss clean_reboot ranges_change)

cleanup() {
  local st=$?
  trap - EXIT INT TERM HUP
  set +e
  mode=faults keep_logs
  rm -rf "$T"
  if [ -n "${KEEP:-}" ]; then echo "# kept: test/lab/cluster-down.sh ends it"; exit "$st"; fi
  "$LAB/cluster-down.sh" 8>&-
  exit "$st"
}

# --- faults; each is called while traffic goes on
agent_pid() { node_exec "$1" pgrep -x culvertd; } # agent_pid NODE, in the node's PID namespace
agents_ready() { kubectl -n kube-system rollout status ds/culvertd --timeout=120s; }
for_span() { # for_span CMD...: again and again
  local s=$SECONDS
  while [ $((SECONDS - s)) -lt "$SPAN" ]; do "$@" || true; sleep .5; done
}
kill_agents() {
  local n p
  for n in "${NODES[@]}"; do for p in $(agent_pid "$n"); do node_exec "$n" kill -9 "$p" && killed=$((killed + 1)); done; done
}
none() { sleep "$SPAN"; }
agent_killed() {
  killed=0
  for_span kill_agents
  note="$killed times"
  # kubelet waits ever longer before it starts one again
  kubectl -n kube-system delete pod -l "$AGENT_LABEL" --wait=false
  check "the agents are back" wait_for 150 agents agents_ready
}
agent_replaced() {
  kubectl -n kube-system rollout restart ds/culvertd
  check "the agents are replaced" agents_ready
}
api_down() {
  control_plane_stop
  local n s=$SECONDS
  # an agent that starts now knows nothing of the cluster
  for n in "${NODES[@]}"; do node_exec "$n" kill -9 "$(agent_pid "$n")"; done
  for n in "${NODES[@]}"; do check "$n: a pod starts while the API server is down" bare_pod "$n"; done
  sleep $((SPAN > SECONDS - s ? SPAN - (SECONDS - s) : 0))
  control_plane_start 8>&-
  kubectl -n kube-system delete pod -l "$AGENT_LABEL" --wait=false
  check "the agents are back" wait_for 150 agents agents_ready
}
# bare_pod NODE: by CRI alone, as kubelet would; then it goes again
bare_pod() {
  local id
  jq -n --arg n "bare-$1" '{metadata: {name: $n, namespace: "default", uid: $n, attempt: 0}, log_directory: "/tmp", linux: {}}' >"$T/pod.json"
  # a file of the node's own
  node_exec "$1" sh -c 'cat >/run/pod.json' <"$T/pod.json"
  id=$("$LAB/node-exec.sh" "$1" crictl runp /run/pod.json) || return
  "$LAB/node-exec.sh" "$1" crictl rmp -f "$id"
}

# reboot NODE INDEX: its PID namespace is ended, its devices are gone; disk and addresses are the same
reboot() {
  "$LAB/runtime-down.sh" -k "$1"
  "$LAB/kube-node.sh" "$1" "$2" "$MODE" 8>&-
}
serves() { # serves NODE: its who answers every node again, by the service's address
  local n svc
  read -ra svc <<<"$(addresses '{.spec.clusterIPs[*]}' "service/who-$1")"
  for n in "${NODES[@]}"; do
    in_node "$n" get "http://${svc[0]}/" | grep -q "^who-$1 " || return
    in_node "$n" get "http://${svc[1]}/" | grep -q "^who-$1 " || return
  done
}
power_loss() {
  dead=n3
  local s=$SECONDS
  reboot n3 3
  check "n3 serves again" wait_for 180 "n3" serves n3
  note="serves again after $((SECONDS - s)) s"
}
clean_reboot() {
  dead=n2
  local s=$SECONDS p
  # as an init does: everybody is asked to end, then made to
  node_exec n2 sh -c 'kill -TERM -1' || true
  sleep 3
  reboot n2 2
  check "n2 serves again" wait_for 180 "n2" serves n2
  note="serves again after $((SECONDS - s)) s"
}

# recreate NODE CIDR4 CIDR6: another Node object by the same name, with these ranges
recreate() {
  kubectl get node "$1" -o json | jq --arg a "$2" --arg b "$3" '{apiVersion, kind,
    metadata: {name: .metadata.name, labels: .metadata.labels}, spec: {podCIDR: $a, podCIDRs: [$a, $b]}}' >"$T/node.json"
  kubectl delete node "$1" --wait
  kubectl create -f - <"$T/node.json"
}
cidrs() { kubectl get node "$1" -o 'jsonpath={.spec.podCIDRs[*]}'; }
gives() { grep -q "\"$2\"" "$(node_dir "$1")"/net.d/10-culvert.conflist; } # gives NODE CIDR
ranges_change() {
  local old4 old6 n
  read -r old4 old6 <<<"$(cidrs n3)"
  recreate n3 10.200.30.0/24 fd00:200:0:30::/64
  recreate n2 "$old4" "$old6" # while n3 has pods in it
  note="n3's ranges to n2 at once"
  check "n3 gives from its new range" wait_for 60 "n3" gives n3 10.200.30.0/24
  check "n2 gives from n3's old one" wait_for 60 "n2" gives n2 "$old4"
  check "the nodes are ready" kubectl wait --for=condition=Ready "${NODES[@]/#/node/}" --timeout=90s
  for n in n2 n3; do pod_manifest "late-$n" "$n" '[]'; done | kubectl apply -f - >/dev/null
  check "pods start in the new ranges" kubectl wait --for=condition=Ready pod/late-n2 pod/late-n3 --timeout=90s
  for n in "${NODES[@]}"; do
    check "$n -> late-n2, of the range that was n3's" says "late-n2 " in_node "$n" get "http://$(pod4 late-n2):8080/"
    check "$n -> late-n3, of its new range" says "late-n3 " in_node "$n" get "http://$(pod4 late-n3):8080/"
  done
  # shellcheck disable=SC2016 # jsonpath
  check "no address is held twice" same "$(kubectl get pods -A -o json | jq -r '.items[] | select(.spec.hostNetwork | not) | .status.podIPs[]?.ip' | sort | uniq -d)" ""
  kubectl get ipblocks -o wide | sed 's/^/# /'
  sleep "$((SPAN / 2))"
}

declare -A TITLE=(
  [none]="nothing, for comparison" [agent_killed]="agents killed (SIGKILL) whenever they run" [agent_replaced]="agents replaced (rollout restart)"
  [api_down]="API server and etcd down, agents restarted meanwhile" [power_loss]="n3 loses its power" [clean_reboot]="n2 reboots cleanly"
  [ranges_change]="Node n3 deleted, made with another range; its old one given to n2"
)
# fault NAME: count while it happens, judge, add to the table
fault() {
  local start out
  note='' dead=
  echo "# ${TITLE[$1]}"
  traffic_up || return
  traffic_reset
  start=$SECONDS
  "$1"
  took=$((SECONDS - start))
  sleep 3 # the last requests' answers
  traffic_counts >"$T/counts"
  out=$(jq -rs --arg dead "$dead" -f "$here/faults.jq" "$T/counts")
  echo "${TITLE[$1]}${note:+, $note}|$took s|$(sed -n 1p <<<"$out")" >>"$ROWS"
  check "$1: nothing is lost${dead:+ between other nodes than $dead}" same "$(sed -n 2p <<<"$out")" "0 0"
  tail -n 1 "$ROWS" | sed 's/^/# /'
  jq -r '.[] | select(.lost > 0 or .broken > 0) | "#   \(.client) -> \(.target) \(.kind): \(.lost) of \(.sent) lost, \(.broken) broken, silent for \(.worst_ms) ms"' "$T/counts"
  if [ -n "$dead" ]; then echo "pairs with $dead||$(sed -n 3p <<<"$out")" >>"$ROWS"; fi
}

document() { # document FILE
  {
    cat "$here/faults.md"
    echo "Kubernetes $(cat "$W/bin/kubelet.version"), kube-proxy in $MODE mode, kernel $(uname -r), $("$root/bin/culvertctl" version | head -n 1 | cut -d, -f1)."
    echo
    echo "| fault | took | requests | lost | connections kept | broken | longest silence | machine's stalls |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$ROWS"
  } >"$1"
}

lab_lock
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
[ -n "${UP:-}" ] || { mode=$MODE; prepare; check "the cluster comes up" cluster; [ "$failed" = 0 ] || exit 1; }
faults=("$@")
[ $# -gt 0 ] || faults=("${all[@]}")
set +e # a check that fails is counted
for f in "${faults[@]}"; do fault "$f"; done
traffic_down
column -t -s '|' "$ROWS"
if [ $# = 0 ]; then document "${DOC:-$root/docs/kubernetes-faults.md}"; fi
KEPT=$W/last-faults summary
