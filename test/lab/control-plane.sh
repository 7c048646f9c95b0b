#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The control plane of a cluster, on a node's network; called by cluster-up.sh as the first process of
# a PID namespace, so that all of it ends with this one. It ends by itself when a part of it does.
#
#   control-plane.sh ADDRESS POD_CIDRS SERVICE_CIDRS
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
C=$(node_dir cluster)
cd "$C"
run() { local name=$1; shift; "$W/bin/$name" "$@" >"$C/$name.log" 2>&1 </dev/null & }

run etcd --data-dir "$C/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
run kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
  --bind-address=0.0.0.0 --advertise-address="$1" --secure-port=6443 --allow-privileged=true \
  --service-cluster-ip-range="$3" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --client-ca-file=ca.crt --tls-cert-file=apiserver.crt --tls-private-key-file=apiserver.key \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
  --kubelet-client-certificate=apiserver-kubelet.crt --kubelet-client-key=apiserver-kubelet.key \
  --kubelet-preferred-address-types=InternalIP --enable-aggregator-routing=true \
  --requestheader-client-ca-file=ca.crt --requestheader-allowed-names=front-proxy \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file=front-proxy.crt --proxy-client-key-file=front-proxy.key
# the other two give up soon on a server that does not answer yet
wait_for 90 kube-apiserver "$W/bin/kubectl" --kubeconfig=admin.conf get --raw /readyz
as() { echo "--kubeconfig=$1.conf" "--authentication-kubeconfig=$1.conf" "--authorization-kubeconfig=$1.conf" --leader-elect=false --bind-address=127.0.0.1; }
# shellcheck disable=SC2046 # words
run kube-controller-manager $(as kube-controller-manager) --use-service-account-credentials=true \
  --allocate-node-cidrs=true --cluster-cidr="$2" --node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=64 --service-cluster-ip-range="$3" \
  --service-account-private-key-file=sa.key --root-ca-file=ca.crt --cluster-signing-cert-file=ca.crt --cluster-signing-key-file=ca.key
# shellcheck disable=SC2046
run kube-scheduler $(as kube-scheduler)
wait -n || true
