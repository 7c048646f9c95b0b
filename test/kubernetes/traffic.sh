# SPDX-License-Identifier: Apache-2.0
#
# Traffic between pods on all pairs of nodes, counted (sourced after smoke.sh): who-NODE serves behind a service,
# count-NODE asks every who without end in both families: datagrams, a kept connection, new ones.
# shellcheck shell=bash disable=SC2154

pod4() { local a; read -ra a <<<"$(addresses '{.status.podIPs[*].ip}' "pod/$1")"; echo "${a[0]}"; }
count_manifest() { # count_manifest NODE TARGET...
  local n=$1; shift
  cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: count-$n}
spec:
  nodeName: $n
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: $IMAGE
    command: [/bin/labpod, count]
    args: $(jq -cn --args '$ARGS.positional' "$@")
    readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
Y
}
traffic_up() { # anew: a reboot gave pods other addresses
  local n a targets=()
  traffic_down
  for n in "${NODES[@]}"; do pod_manifest "who-$n" "$n" '[]'; service_manifest "who-$n"; done | kubectl apply -f - >/dev/null
  kubectl wait --for=condition=Ready "${NODES[@]/#/pod/who-}" --timeout=120s >/dev/null || return
  for n in "${NODES[@]}"; do
    read -ra a <<<"$(addresses '{.status.podIPs[*].ip}' "pod/who-$n")"
    targets+=("$n=${a[0]}" "$n=$(bare "${a[1]}")")
  done
  for n in "${NODES[@]}"; do count_manifest "$n" "${targets[@]}"; done | kubectl apply -f - >/dev/null
  kubectl wait --for=condition=Ready "${NODES[@]/#/pod/count-}" --timeout=120s >/dev/null || return
  sleep 2 # connections are made
}
traffic_down() {
  local pods=() n
  for n in "${NODES[@]}"; do pods+=("who-$n" "count-$n" "late-$n"); done
  kubectl delete --ignore-not-found --now --wait pod "${pods[@]}" >/dev/null 2>&1
}
ask_counters() { # ask_counters PATH
  local n
  for n in "${NODES[@]}"; do
    in_node "$n" get "http://$(pod4 "count-$n"):8080$1" | jq -c --arg n "$n" 'map(. + {client: $n})' 2>/dev/null
  done
}
traffic_counts() { ask_counters /counts; }
traffic_reset() { ask_counters /reset >/dev/null; }
