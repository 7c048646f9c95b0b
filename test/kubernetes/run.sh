#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make test-kubernetes: a dual-stack cluster of three nodes, the third behind a router, whose only network is
# "kubectl apply -k deploy/", and Kubernetes' own end-to-end tests on it: with kube-proxy in iptables mode, then
# anew in nftables mode.
#
#   run.sh [MODE...]
#
# Installs and builds what is missing (kept in W, default /tmp/culvert-lab; the first time half an hour).
# For each mode: the cluster, every way to a pod once (smoke.sh), the tests, culvert's drop counters, and
# after the end of the cluster what is left of it. All logs stay in W/last-MODE. Non-zero unless all is well.
#
#   CNI=bridge      the reference plugins in culvert's place, to compare; CNI=static: without an agent (network.sh)
#   E2E_FOCUS, E2E_SKIP, E2E_PROCS (4)    which tests, how many at once
#   KEEP=1          leave the cluster up; test/lab/cluster-down.sh ends it
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$root/test/lab/check.sh"
. "$here/smoke.sh"
. "$here/after.sh"
. "$here/cluster.sh"
if [ -e "$root/deploy/kustomization.yaml" ]; then : "${CNI:=culvert}"; fi
: "${CNI:=static}" "${E2E_PROCS:=4}"
# all of [sig-network] that is conformance, and what else is about services, hostPorts and names
: "${E2E_FOCUS:=\[sig-network\].*(\[Conformance\]|HostPort|Services|Granular Checks|Conntrack|DNS)}"
# The last wants a call that a node makes, and leads to a pod behind the tunnel, to keep the address of the node's
# uplink: it gets the tunnel's (docs/decisions/0005-source-in-the-tunnel.md). Between nodes of one subnet it passes.
: "${E2E_SKIP:=\[Disruptive\]|\[Feature:|\[Serial\]|NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes}"
lab_lock

NODES=(n1 n2 n3) C=$(node_dir cluster)
LOG=$C/culvert.log
mode=

cleanup() {
  local st=$?
  trap - EXIT INT TERM HUP
  set +e
  keep_logs
  if [ -n "${KEEP:-}" ]; then echo "# kept: test/lab/node-exec.sh n1 ...; test/lab/cluster-down.sh ends it"; exit "$st"; fi
  "$LAB/cluster-down.sh" 8>&-
  exit "$st"
}
e2e_summary() { grep -E '^(Ran [0-9]+ of|SUCCESS!|FAIL!)' "$1"; }
e2e() {
  local out=$C/e2e.log st=0
  (
    cd "$C" # where the tests put what they write
    KUBECONFIG=$C/admin.conf sw_exec "$W/bin/ginkgo" --procs="$E2E_PROCS" --focus="$E2E_FOCUS" --skip="$E2E_SKIP" --no-color --timeout=2h \
      --json-report=e2e.json --output-dir="$C" "$W/bin/e2e.test" -- --num-nodes=${#NODES[@]} --kubeconfig="$C/admin.conf" \
      --provider=skeleton --kubectl-path="$W/bin/kubectl" --minStartupPods=0
  ) >"$out" 2>&1 8>&- || st=$?
  grep -E '^ *\[FAIL\]' "$out" | sort -u
  [ "$st" = 0 ] && [ -n "$(e2e_summary "$out")" ]
}
# those of the selection that chose not to run, and why
e2e_skipped() {
  jq -r '.[].SpecReports[] | select(.State == "skipped" and (.Failure.Message // "") != "") | "\(.LeafNodeText): \(.Failure.Message)"' "$C/e2e.json"
}

one_mode() {
  local before=$failed start=$SECONDS skipped
  mode=$1
  echo "# kube-proxy in $mode mode"
  check "the cluster comes up" cluster
  if [ "$failed" -gt "$before" ]; then return; fi
  smoke || return
  check "the end-to-end tests pass" e2e
  skipped=$(e2e_skipped)
  # shellcheck disable=SC2001 # of each line
  sed 's/^/# skipped itself: /' <<<"${skipped:-none}"
  check "none skipped itself but for a third node or another provider" same "$(grep -vE 'at least 3 schedulable nodes|Only supported for providers' <<<"$skipped")" ""
  if [ "$CNI" != bridge ]; then test_counters; fi
  keep_logs
  if [ -z "${KEEP:-}" ]; then test_teardown; fi
  echo "# $mode: $((SECONDS - start)) s"
}

# what the agents ask of the API server, fifty at once, against kube-apiserver and etcd on loopback
real_apiserver() { CULVERT_KUBERNETES_BIN=$W/bin go -C "$root" test -count=1 -run Real ./cmd/internal/kube 8>&-; }

trap cleanup EXIT
trap 'exit 130' INT TERM HUP
prepare
echo "# Kubernetes $(cat "$W/bin/kubelet.version"), containerd $(cat "$W/bin/containerd.version"), kernel $(uname -r), culvert $("$root/bin/culvertctl" version | head -n 1)"
[ $# -gt 0 ] || set -- iptables nftables
set +e # a check that fails is counted
if [ "$CNI" != bridge ]; then check "fifty agents claim blocks of a kube-apiserver" real_apiserver; fi
for m; do one_mode "$m"; done
for m; do printf '%s: %s\n' "$m" "$(e2e_summary "$W/last-$m/cluster/e2e.log" 2>&1 | tr '\n' ' ')"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] || { echo "# logs: $W/last-MODE" >&2; exit 1; }
