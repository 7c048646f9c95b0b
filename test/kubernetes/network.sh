#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# network.sh CNI: give the cluster its pods' network; called by cluster-up.sh.
#
#   culvert   kubectl apply -k deploy/, and nothing else
#   static    the plugins culvert and host-local, between the nodes what overlay.sh makes: no agent
#   bridge    the reference plugins and overlay.sh, to tell what is culvert's from what is the lab's
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"

pod_cidrs() { kubectl get node "$1" -o 'jsonpath={.spec.podCIDRs[*]}'; }
has_pod_cidrs() { [ -n "$(pod_cidrs "$1")" ]; }
by_hand() { # by_hand CNI
  local n i d spec=() cidrs
  mapfile -t names < <(kubectl get nodes -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}' | sort)
  for i in "${!names[@]}"; do
    n=${names[i]} d=$(node_dir "${names[i]}")
    wait_for 90 "podCIDRs of $n" has_pod_cidrs "$n"
    read -ra cidrs <<<"$(pod_cidrs "$n")"
    spec+=("$n:$((i + 1))=${cidrs[0]},${cidrs[1]}")
    # renamed within the directory: containerd does not see a file that comes from elsewhere
    "$here/conflist.sh" "$1" "$(node_dir cluster)/culvert.log" "${cidrs[@]}" >"$d/net.d/conflist.new"
    mv "$d/net.d/conflist.new" "$d/net.d/10-lab.conflist"
    node_exec "$n" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
  done
  "$LAB/overlay.sh" flannel 1 8472 "${spec[@]}"
}

case ${1:-} in
  culvert)
    kubectl apply -k "$root/deploy"
    kubectl -n kube-system rollout status ds/culvertd --timeout=180s
    ;;
  static | bridge) by_hand "$1" ;;
  *) echo "usage: network.sh culvert | static | bridge" >&2; exit 2 ;;
esac
