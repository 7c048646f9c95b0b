# SPDX-License-Identifier: Apache-2.0
#
# What is looked at after the end-to-end tests (sourced by run.sh): culvert's rows and drop counters on
# each node, and what the cluster's end leaves on the machine.
# shellcheck shell=bash disable=SC2154

PIN=/sys/fs/bpf/culvert
ctl() { local n=$1; shift; node_exec "$n" "$root/bin/culvertctl" "$@" -o json; }

# drops NODE: one line a hook and reason, of the pods that are gone too: a device's number is not used twice.
# Not those of a pod that culvert-record.sh saw without its row in pods: it was being deleted, and what its
# kernel still says of its closed sockets has nowhere to go.
drops() {
  local d; d=$(node_dir "$1")/cni-bin
  node_exec "$1" "$d/culvert" || return
  [ -e "$d/culvert.counters" ] || return 0
  jq -rs '
    def sum(f): [.[] | f] | add;
    def name(prefix): ltrimstr(prefix) | ascii_downcase;
    [.[] | .alive as $alive | .counters[]
      | select((.key.hook | IN("HOOK_FROM_POD", "HOOK_TO_POD") | not) or (.key.ifindex | IN($alive[])))
      | {key, packets: (.values | sum(.value.packets)), bytes: (.values | sum(.value.bytes))}]
    | group_by(.key) | map(max_by(.packets)) | group_by([.key.hook, .key.reason])[]
    | "\(.[0].key.hook | name("HOOK_")) \(.[0].key.reason | name("DROP_")): \(sum(.packets)) packets, \(sum(.bytes)) bytes, \(length) devices"' "$d/culvert.counters"
}

# the pods that culvert has rows of are those that the node runs
pods_match() { # pods_match NODE
  local have want
  want=$(kubectl get pods -A --field-selector "spec.nodeName=$1" -o json | jq '[.items[] | select(.spec.hostNetwork | not)] | length')
  have=$(ctl "$1" pods | jq 'map(.container) | unique | length')
  same "$have" "$want"
}

# not the namespaces: a LoadBalancer service, which no controller here ends, holds one
no_test_pod() { [ -z "$(kubectl get pods -A --field-selector metadata.namespace!=kube-system -o name)" ]; }

test_counters() {
  local n d
  wait_for 180 "end of the tests' pods" no_test_pod
  for n in "${NODES[@]}"; do
    wait_for 120 "pods of $n" pods_match "$n" 2>/dev/null
    check "$n: culvert has rows of the pods that run and of no other" pods_match "$n"
    check "$n: no hostPort is left" same "$(ctl "$n" hostports | jq length)" 0
    check "$n: culvertctl status names no fault" same "$(ctl "$n" status | jq -c .faults)" "[]"
    d=$(drops "$n" 2>&1)
    echo "# $n: drops: ${d:-none}"
    check "$n: culvert dropped nothing" same "$d" ""
    check "$n: no counter is left of a pod that is gone" same "$(node_exec "$n" sh -c "exec bpftool -j map dump pinned $PIN/v*/maps/counters" |
      jq -c --argjson alive "$(ctl "$n" pods | jq -c 'map(.ifindex)')" '.[].formatted.key | select(.hook == "HOOK_FROM_POD" or .hook == "HOOK_TO_POD")
        | select(.ifindex | IN($alive[]) | not)')" ""
  done
}

# kept_alive ID...: processes in one of these namespaces
kept_alive() {
  local p id
  for p in /proc/[0-9]*; do
    for id in "$(readlink "$p/ns/pid")" "$(readlink "$p/ns/net")"; do
      case " $* " in *" $id "*) echo "process ${p#/proc/}: $(tr '\0' ' ' <"$p/cmdline")" ;; esac
    done
  done 2>/dev/null
}
# left_of ID...: one line for each thing of the lab that is still there
left_of() {
  ip netns list | grep culvertlab
  grep -F " $W/run" /proc/self/mounts
  find /sys/fs/cgroup -name culvertlab
  find "$W/run" -mindepth 1 -maxdepth 1
  kept_alive "$@"
}
test_teardown() {
  local ids=() n
  for n in "${NODES[@]}"; do ids+=("$(readlink "/proc/$(node_pid "$n")/ns/pid")" "$(readlink "/proc/$(node_pid "$n")/ns/net")"); done
  # the control plane's, whose first process is unshare's child
  ids+=("$(readlink "/proc/$(cat "$C/pid")/ns/pid_for_children")")
  check "the cluster goes down" "$LAB/cluster-down.sh" 8>&-
  check "nothing is left: namespace, mount, cgroup, file, process" same "$(left_of "${ids[@]}")" ""
}
