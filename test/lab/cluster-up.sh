#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A dual-stack Kubernetes cluster of real components: etcd, API server, controller manager and scheduler on the
# first node's network, as on a machine of kubeadm's; NODES nodes (kube-node.sh), each with containerd, kubelet and
# kube-proxy; cluster DNS. Nodes 1 and 2 share a subnet, the others are behind a router that, like a cloud's,
# knows no pod and passes none of their packets. Built anew every time; cluster-down.sh removes it.
#
#   cluster-up.sh PROXY_MODE NETWORK_CMD...     NODES (3)
#
# PROXY_MODE: iptables or nftables. The network is the caller's: NETWORK_CMD is run once all nodes are
# registered, and after it they must become ready.
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
. "$LAB/pki.sh"
: "${NODES:=3}"
MODE=$1; shift
mapfile -t names < <(nodes "$NODES")
C=$(node_dir cluster)

# fabric: a router that has no route to a pod and trusts no address but those of its subnets
fabric() {
  sw_exec nft -f - <<N
table inet fabric {
  chain prerouting {
    type filter hook prerouting priority raw
    ip saddr 10.200.0.0/15 counter drop
    ip daddr 10.200.0.0/15 counter drop
    ip6 saddr fd00:200::/55 counter drop
    ip6 daddr fd00:200::/55 counter drop
  }
}
N
}

control_plane() {
  mkdir -p "$C"; cd "$C"
  pki_up "$(node4 1)" 10.96.0.1
  local u
  for u in admin kube-controller-manager kube-scheduler kube-proxy; do pki_kubeconfig "$u" "$CLUSTER_URL" >"$u.conf"; done
  control_plane_start
}
registered() { [ "$(kubectl get nodes -o name | wc -l)" = "$NODES" ]; }

sw_up
fabric
"$LAB/runtime-up.sh" n1 1 # its network
control_plane
for i in "${!names[@]}"; do "$LAB/kube-node.sh" "${names[i]}" $((i + 1)) "$MODE"; done
wait_for 60 "registration of $NODES nodes" registered
"$@"
kubectl wait --for=condition=Ready "${names[@]/#/node/}" --timeout=180s
kubectl apply -f "$LAB/coredns.yaml"
kubectl -n kube-system rollout status deploy/coredns --timeout=180s
