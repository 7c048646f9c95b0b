#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make test-kind: a kind cluster of three nodes without a network, then "kubectl apply -k deploy/" and no more:
# the nodes become ready, pods on all nodes reach each other, services, names and hostPorts; what was made is
# taken down.
#
#   run.sh [PROXY_MODE]     nftables (default), iptables
#   KEEP=1                  leave the cluster up; down.sh ends it
#
# Uses docker where it answers; without it dockerd runs in a node of the lab (lib.sh), for which Kubernetes is
# built from its Go modules, half an hour the first time.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$root/test/lab/check.sh"
. "$here/lib.sh"
mkdir -p "$W"
exec 8>"$W/lock"
flock 8
KEPT=$W/last-kind

cleanup() {
  local st=$?
  trap - EXIT INT TERM HUP
  set +e
  if [ "$st" != 0 ]; then keep_logs; fi
  if [ -n "${KEEP:-}" ]; then echo "# kept: test/kind/down.sh ends it"; exit "$st"; fi
  "$here/down.sh" 8>&- >/dev/null 2>&1
  exit "$st"
}
keep_logs() {
  rm -rf "$KEPT"; mkdir -p "$KEPT"
  cp "$K"/*.log "$KEPT/"
  kubectl get pods -A -o wide
  kubectl -n kube-system describe pods -l "$AGENT_LABEL" | tail -n 30
  kubectl -n kube-system logs -l "$AGENT_LABEL" --tail=20
} 2>&1
kubectl() { where kubectl "$@"; }

prepare() {
  "$root/test/install-deps.sh" base runtime
  "$LAB/build-runtime.sh"
  make -s -C "$root" build ref
  "$LAB/make-images.sh"
  "$LAB/make-images.sh" culvert
  if [ -n "${OWN_DOCKER:-}" ]; then
    "$root/test/install-deps.sh" kubernetes
    "$LAB/build-kubernetes.sh" kind
    CGO_ENABLED=0 go build -C "$root" -o "$W/bin/labreg" ./test/lab/labreg
    "$LAB/make-images.sh" kind
    "$here/image.sh"
  else
    [ -x "$W/bin/kind" ] || GOBIN=$W/bin CGO_ENABLED=0 go install "sigs.k8s.io/kind@$KIND_VERSION"
    [ -x "$W/bin/kubectl" ] || "$LAB/build-kubernetes.sh" kind
  fi
}
# load IMAGE: an archive of the lab to every node, as "kind load docker-image" does with docker's
load() { where kind load image-archive "$W/images/$1.tar" --name "$KIND_CLUSTER"; }

nodes_ready() { kubectl wait --for=condition=Ready nodes --all --timeout=180s; }
manifests() {
  local n
  while read -r n; do cat <<Y; done <<<"$NAMES"
---
apiVersion: v1
kind: Pod
metadata: {name: who-$n, labels: {app: who-$n, who: "yes"}}
spec:
  nodeName: $n
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: $IMAGE
    command: [/bin/labpod, serve]
    env: [{name: POD, value: who-$n}]
    ports: [{containerPort: 8080, hostPort: 18080}]
    readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: who-$n}
spec:
  selector: {app: who-$n}
  ipFamilyPolicy: RequireDualStack
  ports: [{name: http, port: 80, targetPort: 8080}]
Y
}
field() { kubectl get "$1" -o "jsonpath=$2"; }
url() { case $1 in *:*) echo "http://[$1]:$2/" ;; *) echo "http://$1:$2/" ;; esac; }
asks() { kubectl exec "$1" -- /bin/labpod get "$3" | grep -q "^$2 "; }
test_pair() { # test_pair FROM TO
  local a
  for a in $(field "pod/$2" '{.status.podIPs[*].ip}'); do check "$1 -> $2 at $a" asks "$1" "$2" "$(url "$a" 8080)"; done
  for a in $(field "service/$2" '{.spec.clusterIPs[*]}'); do check "$1 -> $2 by its service, $a" wait_for 30 "$a" asks "$1" "$2" "$(url "$a" 80)"; done
  for a in $(field "pod/$2" '{.status.hostIPs[*].ip}'); do check "$1 -> $2 by its hostPort at $a" asks "$1" "$2" "$(url "$a" 18080)"; done
  check "$1 -> $2 by its name" wait_for 30 "$2" asks "$1" "$2" "http://$2.default.svc.cluster.local/"
}
smoke() {
  local f t
  mapfile -t names < <(kubectl get nodes -o name | sed 's#node/##')
  NAMES=$(printf '%s\n' "${names[@]}")
  manifests >"$K/smoke.yaml"
  kubectl apply -f "$K/smoke.yaml" >/dev/null
  check "pods start on every node" kubectl wait --for=condition=Ready pod -l who=yes --timeout=120s
  for f in "${names[@]}"; do for t in "${names[@]}"; do test_pair "who-$f" "who-$t"; done; done
}

trap cleanup EXIT
trap 'exit 130' INT TERM HUP
prepare
"$here/down.sh" 8>&- >/dev/null 2>&1 || true # of a run that was killed
start=$SECONDS
set +e # a check that fails is counted
check "kind makes a cluster without a network" "$here/up.sh" "${1:-nftables}" 8>&-
[ "$failed" = 0 ] || summary
check "the images are loaded into the nodes" load culvert
check "the images of the tests, too" load pod
check "kubectl apply -k deploy/" kubectl apply -k "$root/deploy"
check "the nodes are ready" nodes_ready
[ "$failed" = 0 ] || summary
check "the system's pods run" kubectl -n kube-system wait --for=condition=Ready pods --all --timeout=180s
echo "# $((SECONDS - start)) s from nothing to there"
smoke
kubectl get ippools,ipblocks -o wide | sed 's/^/# /'
if [ -z "${KEEP:-}" ]; then
  check "the cluster goes down" "$here/down.sh" 8>&-
  check "nothing is left: namespace, mount, cgroup, file" same "$(ip netns list | grep culvertlab; grep -F " $W/run" /proc/self/mounts; find "$W/run" -mindepth 1 -maxdepth 1)" ""
fi
summary
