#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A kind cluster of a control plane and two workers, dual stack, without a network: kind's default one is off.
#
#   up.sh [PROXY_MODE]      nftables (default), iptables
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$here/lib.sh"

own_docker() {
  if [ ! -x "$K/docker/usr/sbin/dockerd" ]; then
    local tmp; tmp=$(mktemp -d "$K/deb.XXXXXX")
    (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download docker.io && dpkg -x docker.io_*.deb "$tmp/x")
    rm -rf "$K/docker"; mv "$tmp/x" "$K/docker"; rm -rf "$tmp"
  fi
  "$LAB/runtime-up.sh" "$DOCKER_NODE" "$DOCKER_INDEX"
  mkdir -p "$(node_dir "$DOCKER_NODE")/disk/docker"
  where setsid sh -c 'log=$1; shift; exec "$@" >"$log" 2>&1 </dev/null &' - "$K/dockerd.log" \
    dockerd --containerd /run/containerd/containerd.sock --data-root "$(node_dir "$DOCKER_NODE")/disk/docker" --exec-root /run/docker \
    --pidfile /run/docker.pid -H unix:///run/docker.sock --dns "$DOCKER_NET.1" --add-runtime lab="$here/runc.sh" --default-runtime lab
  wait_for 60 dockerd where docker version
  where docker load -q -i "$K/node.tar"
  where docker network create -d bridge --ipv6 --subnet "$DOCKER_NET.0/16" --subnet fd00:125::/64 kind >/dev/null
  where setsid sh -c 'log=$1; shift; exec "$@" >"$log" 2>&1 </dev/null &' - "$K/labreg.log" \
    "$W/bin/labreg" "$REGISTRY" "$W"/images/*.tar "$K"/images/*.tar
}

config() { # config PROXY_MODE
  cat <<Y
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking: {disableDefaultCNI: true, ipFamily: dual, kubeProxyMode: $1}
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  apiVersion: kubelet.config.k8s.io/v1beta1
  failCgroupV1: false
  oomScoreAdj: 0
nodes:
- role: control-plane
- role: worker
- role: worker
Y
}

# the lab's small CoreDNS has not all plugins that kubeadm's configuration names
own_dns() {
  where kubectl -n kube-system get configmap coredns -o json | jq '.data.Corefile = ".:53 {
      errors
      health :8080
      ready :8181
      kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
      }
      template ANY ANY . {
        rcode NXDOMAIN
      }
    }"' | where kubectl replace -f -
}

[ -z "${OWN_DOCKER:-}" ] || own_docker
config "${1:-nftables}" >"$K/config.yaml"
where kind create cluster --name "$KIND_CLUSTER" ${OWN_DOCKER:+--image "$KIND_NODE"} --config "$K/config.yaml" --kubeconfig "$K/kubeconfig" --retain
[ -z "${OWN_DOCKER:-}" ] || own_dns
