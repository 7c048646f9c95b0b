#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build a cluster's programs from Go modules: Kubernetes with its end-to-end tests and what their images
# run, etcd, a small CoreDNS. 25-30 minutes on two processors the first time, 7 GB of Go's cache;
# afterwards W/bin is taken as it is.
#
#   build-kubernetes.sh [kind]    W (default /tmp/culvert-lab), JOBS, KUBERNETES_VERSION, ETCD_VERSION,
#                                 COREDNS_VERSION; with "kind" also kubeadm and kind, of KIND_VERSION
set -euo pipefail
LAB=$(dirname "$(readlink -f "$0")")
. "$LAB/lib.sh"
. "$LAB/gomod.sh"
: "${KUBERNETES_VERSION:=v1.37.2}" "${ETCD_VERSION:=v3.7.3}" "${COREDNS_VERSION:=v1.14.6}" "${KIND_VERSION:=v0.33.0}"

# Kubernetes' go.mod replaces its staging modules by paths; each is published as v0.x.y for v1.x.y.
v=$KUBERNETES_VERSION k=k8s.io/kubernetes
minor=${v#v1.} minor=${minor%%.*}
wrap k8s "$k" "$v" "s#=> \./staging/src/\(k8s\.io/[a-z0-9-]*\)\$#=> \1 v0.${v#v1.}#"
c=k8s.io/component-base/version
# kubelet and API server compare what these say
ld="-X $c.gitVersion=$v -X $c.gitMajor=1 -X $c.gitMinor=$minor -X $c.gitTreeState=archive -X $c.gitCommit=lab -X $c.buildDate=1970-01-01T00:00:00Z"
for p in kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl; do build "$v" "$k/cmd/$p" "$ld"; done
for p in agnhost regression-issue-74839; do build "$v" "$k/test/images/$p" "$ld"; done
build "$v" "$k/test/e2e.test" "$ld"
build "$v" github.com/onsi/ginkgo/v2/ginkgo ""
if [ "${1:-}" = kind ]; then
  build "$v" "$k/cmd/kubeadm" "$ld"
  wrap kind sigs.k8s.io/kind "$KIND_VERSION"
  build "$KIND_VERSION" sigs.k8s.io/kind ""
fi

wrap etcd go.etcd.io/etcd/server/v3 "$ETCD_VERSION"
build "$ETCD_VERSION" go.etcd.io/etcd/server/v3 "" etcd
wrap coredns github.com/coredns/coredns "$COREDNS_VERSION"
cp "$LAB/labdns/main.go" .
build "$COREDNS_VERSION-$(sha256sum main.go | cut -c1-8)" main.go "" coredns
