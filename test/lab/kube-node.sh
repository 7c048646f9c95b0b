#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# kube-node.sh NODE INDEX PROXY_MODE: a node of the cluster: runtime-up.sh's, with kubelet and kube-proxy. Called
# by cluster-up.sh, and by who lets a node start again.
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
. "$LAB/pki.sh"
N=$1 I=$2 MODE=$3 C=$(node_dir cluster) D=$(node_dir "$1")

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
clusterDNS: [$CLUSTER_DNS]
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
  node_exec "$n" setsid sh -c 'log=$1; shift; exec "$@" >>"$log" 2>&1 </dev/null &' - "$(node_dir "$n")/$p.log" "$W/bin/$p" "$@"
}

images=(pod tools agnhost regression)
[ ! -e "$W/images/culvert.tar" ] || images+=(culvert)
"$LAB/runtime-up.sh" "$N" "$I" "${images[@]}"
cd "$C"
if [ ! -e "$D/kubelet.conf" ]; then
  pki_certificate "node-$N" "/O=system:nodes/CN=system:node:$N"
  pki_kubeconfig "node-$N" "$CLUSTER_URL" >"$D/kubelet.conf"
  kubelet_config "$N" >"$D/kubelet.yaml"
fi
cgroups "$N"
start "$N" kubelet --config="$D/kubelet.yaml" --kubeconfig="$D/kubelet.conf" --root-dir="$D/disk/kubelet" \
  --hostname-override="$N" --node-ip="$(node4 "$I"),$(node6 "$I")" --v=2
# conntrack's sysctls are not a network namespace's to set
start "$N" kube-proxy --kubeconfig="$C/kube-proxy.conf" --hostname-override="$N" --proxy-mode="$MODE" --cluster-cidr="$CLUSTER_PODS" \
  --conntrack-max-per-core=0 --conntrack-min=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
  --metrics-bind-address=127.0.0.1:10249
