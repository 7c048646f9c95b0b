# SPDX-License-Identifier: Apache-2.0
#
# The words that run.sh's checks are written in (sourced; needs test/lab/lib.sh and run.sh's variables).

. "$LAB/check.sh"

# --- where things run: "node", "sw" (another host), or a pod's name
lab_in() {
  local at=$1; shift
  case $at in
    node) node_exec "$N" "$W/bin/labpod" "$@" ;;
    sw) sw_exec "$W/bin/labpod" "$@" ;;
    *) crictl exec "$(cat "$D/$at.ctr")" /bin/labpod "$@" ;;
  esac
}
answers() { local want=$1 at=$2; shift 2; has "$(lab_in "$at" "$@")" "$want"; }
refused() { # refused URL: nobody listens there, as another host sees it
  local out
  if out=$(sw_exec "$W/bin/labpod" get "$1" 2>&1); then echo "answered: $out"; return 1; fi
  has "$out" "connection refused"
}
# near RATE AT CMD...: goodput within 0.80-1.02 of RATE in one of three tries. Headers take 4.3 % of the
# wire rate; the slack downwards is for a machine that does other things as well.
near() {
  local want=$1 at=$2 got seen=; shift 2
  for _ in 1 2 3; do
    got=$(lab_in "$at" "$@") || return 1
    seen="$seen $got"
    if [ "$got" -ge $((want * 80 / 100)) ] && [ "$got" -le $((want * 102 / 100)) ]; then return; fi
  done
  echo "bit/s seen:$seen, limit $want"; return 1
}
above() { local least=$1 at=$2 got; shift 2; got=$(lab_in "$at" "$@") && [ "$got" -gt "$least" ] || { echo "bit/s: $got"; return 1; }; }
family() { case $1 in \[*) echo IPv6 ;; *) echo IPv4 ;; esac; }
outside_ip() { case $1 in IPv6) echo "$OUT6" ;; *) echo "$OUT4" ;; esac; }

# --- CRI
crictl() { node_exec "$N" "$W/bin/crictl" -c "$D/crictl.yaml" "$@"; }
condition() { crictl info | jq '.status.conditions[] | select(.type == "NetworkReady")'; }
ready() { [ "$(condition | jq .status)" = true ]; }
not_ready() { [ "$(condition | jq .status)" = false ]; }
start_pod() { # start_pod NAME JSON: JSON's keys go into the sandbox's configuration
  local pod ctr
  jq -n --arg n "$1" --arg u "$1-$RANDOM$RANDOM" --arg g "/culvertlab/$N" "{metadata: {name: \$n, namespace: \"default\", uid: \$u, attempt: 1},
    hostname: \$n, log_directory: \"/run/log/pods\", linux: {cgroup_parent: \$g}} + $2" >"$D/$1.json"
  jq -n --arg n "$1" --arg i "$IMAGE" '{metadata: {name: "main"}, image: {image: $i}, log_path: "\($n).log",
    command: ["/bin/labpod", "serve"], envs: [{key: "POD", value: $n}], linux: {}}' >"$D/$1.ctr.json"
  pod=$(crictl runp "$D/$1.json") || { echo "$pod"; return 1; }
  echo "$pod" >"$D/$1.pod"
  ctr=$(crictl create "$pod" "$D/$1.ctr.json" "$D/$1.json") || { echo "$ctr"; return 1; }
  echo "$ctr" >"$D/$1.ctr"
  crictl start "$ctr" && wait_for 10 "server in $1" lab_in "$1" get http://127.0.0.1:8080/
}
# the sandboxes of that name; containerd keeps none whose ADD failed
sandboxes() { crictl pods -q --name "^$1\$"; }
stop_pod() { local n p; for n; do for p in $(sandboxes "$n"); do crictl stopp "$p" || return; done; done; }
delete_pod() { local n p; stop_pod "$@" || return; for n; do for p in $(sandboxes "$n"); do crictl rmp "$p" || return; done; done; }
pod_info() { crictl inspectp "$(cat "$D/$1.pod")"; }
pod_ip() { # pod_ip NAME FAMILY
  pod_info "$1" | jq -r --arg f "$2" '[.status.network | .ip, .additionalIps[]?.ip]
    | map(select(contains(":") == ($f == "6"))) | first // empty'
}
pod_netns() { pod_info "$1" | jq -r '.info.runtimeSpec.linux.namespaces[] | select(.type == "network").path'; }

# --- culvert
ctl() { node_exec "$N" "$root/bin/culvertctl" --pin-path "$PIN" "$@" -o json; }
# calls COMMAND [POD]: what containerd said to the plugin, one JSON line a call
calls() {
  jq -c --arg c "$1" --arg p "${2:-}" 'select(.env.CNI_COMMAND == $c and
    ($p == "" or (.env.CNI_ARGS // "" | split(";") | any(. == "K8S_POD_NAME=" + $p))))' "$CALLS"
}
# leftovers: every veth but the uplink, host route, map row and lease, one a line
leftovers() {
  {
    node_exec "$N" ip -o link show type veth | cut -d: -f2 | grep -v ' eth0@'
    node_exec "$N" ip route show | grep -e "$POD4" -e "$NEW4"
    node_exec "$N" ip -6 route show | grep -e "${POD6%:}" -e "${NEW6%:}"
    for m in pods ifaces hostports limits counters; do
      node_exec "$N" sh -c "exec bpftool -j map dump pinned $PIN/v*/maps/$m" |
        jq -c --arg m "$m" 'if type == "array" then .[] | {($m): (.formatted.key // .key)} else {($m): .} end'
    done
    ctl addresses | jq -c '.[]'
    node_exec "$N" find "$DATA" -type f ! -name lock ! -name 'last_reserved_ip.*'
  } 2>&1 | sort
}
