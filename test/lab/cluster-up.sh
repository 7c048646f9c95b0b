#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A dual-stack Kubernetes cluster of real components: etcd, API server, controller manager, scheduler on the
# switch's network; two nodes (runtime-up.sh), each with containerd, kubelet and kube-proxy; cluster DNS.
# Built anew every time; cluster-down.sh removes it.
#
#   cluster-up.sh PROXY_MODE CONFLIST_CMD...
#
# PROXY_MODE: iptables or nftables. The network is the caller's: plugins lie in W/run/NODE/cni-bin, and
# "CONFLIST_CMD... NODE CIDR..." prints the node's configuration for the pod ranges that it was given.
# Routes between those ranges are made here, on the nodes and on the switch.
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
. "$LAB/pki.sh"
MODE=$1; shift
NODES=(n1 n2)
C=$(node_dir cluster) URL=https://$LAB_NET4.1:6443
PODS=10.200.0.0/16,fd00:200::/56 SERVICES=10.96.0.0/16,fd00:96::/112 DNS=10.96.0.10

control_plane() {
  mkdir -p "$C"; cd "$C"
  pki_up "$LAB_NET4.1" 10.96.0.1
  local u
  for u in admin kube-controller-manager kube-scheduler kube-proxy; do pki_kubeconfig "$u" "$URL" >"$u.conf"; done
  setsid nsenter --net="/run/netns/$SW" unshare -p --fork --kill-child "$LAB/control-plane.sh" "$PODS" "$SERVICES" \
    >"$C/control-plane.log" 2>&1 </dev/null &
  echo $! >"$C/pid"
  wait_for 90 "API server" kubectl get --raw /readyz
}

# cgroups NODE: kubelet wants its root to be there in every hierarchy, which is one with cgroup 2
cgroups() {
  local h=(/sys/fs/cgroup/) f p q=/sys/fs/cgroup/cpuset
  [ -e /sys/fs/cgroup/cgroup.controllers ] || h=(/sys/fs/cgroup/*/)
  mkdir -p "${h[@]/%/culvertlab/$1}"
  [ -e "$q/cpuset.cpus" ] || return 0
  # a cpuset of cgroup 1 takes no process before it is filled
  for f in cpuset.cpus cpuset.mems; do for p in culvertlab "culvertlab/$1"; do
    [ -n "$(cat "$q/$p/$f")" ] || cat "$q/$f" >"$q/$p/$f"
  done; done
}

kubelet_config() { # kubelet_config NODE
  cat <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $C/ca.crt}}
authorization: {mode: Webhook}
clusterDomain: cluster.local
clusterDNS: [$DNS]
resolvConf: ""
cgroupDriver: cgroupfs
cgroupRoot: /culvertlab/$1
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0 # a negative one fails where root lacks CAP_SYS_RESOURCE
podLogsDir: /run/log/pods
serializeImagePulls: false
# the disk is a tmpfs or the machine's own, and neither is kubelet's to clean
evictionHard: {memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
Y
}

start() { # start NODE PROGRAM ARG...: in a node, its log beside the others
  local n=$1 p=$2; shift 2
  # shellcheck disable=SC2016 # of the inner shell
  node_exec "$n" setsid sh -c 'log=$1; shift; exec "$@" >"$log" 2>&1 </dev/null &' - "$(node_dir "$n")/$p.log" "$W/bin/$p" "$@"
}

node() { # node NAME INDEX
  local n=$1 i=$2 d
  d=$(node_dir "$n")
  "$LAB/runtime-up.sh" "$n" "$i" pod tools agnhost regression
  cd "$C"
  pki_certificate "node-$n" "/O=system:nodes/CN=system:node:$n"
  pki_kubeconfig "node-$n" "$URL" >"$d/kubelet.conf"
  kubelet_config "$n" >"$d/kubelet.yaml"
  cgroups "$n"
  start "$n" kubelet --config="$d/kubelet.yaml" --kubeconfig="$d/kubelet.conf" --root-dir=/run/kubelet \
    --hostname-override="$n" --node-ip="$LAB_NET4.$((10 + i)),$LAB_NET6$((10 + i))" --v=2
  # conntrack's sysctls are not a network namespace's to set
  start "$n" kube-proxy --kubeconfig="$C/kube-proxy.conf" --hostname-override="$n" --proxy-mode="$MODE" --cluster-cidr="$PODS" \
    --conntrack-max-per-core=0 --conntrack-min=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
    --metrics-bind-address=127.0.0.1:10249
}

pod_cidrs() { kubectl get node "$1" -o 'jsonpath={.spec.podCIDRs[*]}'; }
has_pod_cidrs() { [ -n "$(pod_cidrs "$1")" ]; }
network() { # network NODE INDEX CONFLIST_CMD...
  local n=$1 i=$2 d cidrs c via other; shift 2
  d=$(node_dir "$n")
  wait_for 90 "podCIDRs of $n" has_pod_cidrs "$n"
  read -ra cidrs <<<"$(pod_cidrs "$n")"
  for c in "${cidrs[@]}"; do
    case $c in *:*) via=$LAB_NET6$((10 + i)) ;; *) via=$LAB_NET4.$((10 + i)) ;; esac
    ip -n "$SW" route replace "$c" via "$via"
    for other in "${NODES[@]}"; do [ "$other" = "$n" ] || ip -n "$(node_ns "$other")" route replace "$c" via "$via"; done
  done
  # renamed within the directory: containerd does not see a file that comes from elsewhere
  "$@" "$n" "${cidrs[@]}" >"$d/net.d/conflist.new"
  mv "$d/net.d/conflist.new" "$d/net.d/10-lab.conflist"
}

sw_up
# the nodes' way to each other's pods if they lack a route, and to an answer for what is nowhere
sw_exec sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
control_plane
for i in "${!NODES[@]}"; do node "${NODES[i]}" $((i + 1)); done
for i in "${!NODES[@]}"; do network "${NODES[i]}" $((i + 1)) "$@"; done
kubectl wait --for=condition=Ready "${NODES[@]/#/node/}" --timeout=120s
kubectl apply -f "$LAB/coredns.yaml"
kubectl -n kube-system rollout status deploy/coredns --timeout=120s
