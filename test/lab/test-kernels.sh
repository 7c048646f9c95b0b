#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make test-kernels: the datapath's tests under other kernels, in qemu (vm-run.sh). They are compiled
# here, as the guest has no network, and run there from their package's directory, one boot a kernel.
#
#   KERNELS  version prefixes or names, the newest match is taken      [6.1 6.12 6.18 7]
#   PKGS     packages        [./bpf/... ./maps/... ./loader/... ./cmd/internal/... ./test/verifier ./test/e2e ./test/crash]
#   RUN      filter, as go test -run                                   []
#   ARGS     more arguments of the test binaries                       []
#   TAGS     build tags                                                []
#   JOBS     guests side by side                                       [2]
#   SLOW     how many of the slowest tests to list                     [0]
#   VM_CPUS  processors a guest                                        [1 if JOBS > 1, else 2]
#   PARTS    limits: the tests of limits (B1-B7, X3B); others: all but those  [others limits]
#   VM_TIMEOUT, VM_MEM and what else vm-run.sh reads. Without KVM a guest is 10 to 30 times slower than
#   the host: raise VM_TIMEOUT where the machine is busy.
#
# Standard output has the packages as they begin, what failed, and the summary; all of it stays in
# CULVERT_LAB/kernels/KERNEL.log.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
: "${KERNELS:=6.1 6.12 6.18 7}" "${RUN:=}" "${ARGS:=}" "${TAGS:=}" "${JOBS:=2}" "${SLOW:=0}"
: "${PKGS:=./bpf/... ./maps/... ./loader/... ./cmd/internal/... ./test/verifier ./test/e2e ./test/crash}"
: "${CULVERT_LAB:=/tmp/culvert-lab}" "${PARTS:=others limits}"
LIMITS='^TestPrivileged(X3)?B[0-9]' OTHERS='^Test[^P]|^TestPrivileged([^BX]|B[^0-9]|X[^3]|X3[^B]|X3B[^0-9])'
export VM_TIMEOUT=${VM_TIMEOUT:-3600} VM_MEM=${VM_MEM:-2048} VM_CPUS=${VM_CPUS:-$((JOBS > 1 ? 1 : 2))}
# Loaded beforehand, as the guest's tools ask for some of them by names that no alias leads to.
export VM_MODULES=${VM_MODULES:-veth sctp bridge vxlan dummy ifb tun sch_ingress cls_bpf act_bpf act_mirred act_gact
  sch_tbf sch_fq sch_htb nf_conntrack nf_tables nf_nat nft_ct nft_nat nft_chain_nat nft_masq nft_redir
  nft_reject_inet nft_compat ip_tables ip6_tables iptable_nat iptable_filter ip6table_nat ip6table_filter
  xt_conntrack xt_MASQUERADE xt_nat xt_mark xt_comment xt_addrtype xt_multiport tcp_bbr}
VM_MODULES=$(tr -s '\n ' ' ' <<<"$VM_MODULES")

out=$CULVERT_LAB/kernels
mkdir -p "$CULVERT_LAB"
exec 8>"$out.lock"; flock 8
rm -rf "$out"; mkdir -p "$out"
cd "$root"

# --- here: one test binary a package; the list says "NAME DIRECTORY"
# shellcheck disable=SC2086 # lists of words
go list -e -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ${TAGS:+-tags "$TAGS"} $PKGS 2>/dev/null |
  while read -r pkg dir; do
    name=$(tr / - <<<"${dir#"$root"/}")
    CGO_ENABLED=0 nice go test -c ${TAGS:+-tags "$TAGS"} -o "$out/$name.test" "$pkg"
    echo "$name $dir"
  done >"$out/list"
[ -s "$out/list" ] || { echo "test-kernels: no tests in $PKGS" >&2; exit 1; }

# --- there: all of them, one after the other
cat >"$out/guest" <<'G'
#!/bin/bash
# guest LIST RUN SECONDS [ARG...]
export CULVERT_TEST_KERNELS=1
list=$1 run=$2 seconds=$3; shift 3
uname -r | sed 's/^/@kernel /'
while read -r name dir; do
  echo "@package $name"
  began=$SECONDS
  cd "$dir" && "${list%/*}/$name.test" -test.v -test.count=1 -test.timeout="${seconds}s" ${run:+-test.run "$run"} "$@" </dev/null
  echo "@status $name $? $((SECONDS - began))"
done <"$list"
G
chmod +x "$out/guest"

# one KERNEL: the whole run of a kernel, to its log. Limits are tested in a boot of their own: they are about
# time, and without KVM a guest's clock is that of a machine whose processor comes and goes, unless it goes
# by instructions.
one() {
  local log=$out/$1.log st=0
  if [[ $PARTS == *others* ]]; then
    boot "$1" "$out/list" "$LIMITS" >"$log" 2>&1 || st=$?
  fi
  if [[ $PARTS == *limits* ]] && grep '^test-e2e ' "$out/list" >"$out/e2e"; then
    VM_CLOCK=instructions boot "$1" "$out/e2e" "$OTHERS" >>"$log" 2>&1 || st=$?
  fi
  echo "@end $st" >>"$log"
}

boot() { # KERNEL LIST SKIP
  local vm
  # shellcheck disable=SC2086
  VM_SHARE=$out "$here/vm-run.sh" "$1" "$out/guest" "$2" "$RUN" "$VM_TIMEOUT" -test.skip "$3" $ARGS </dev/null 8>&- &
  vm=$!
  trap 'kill "$vm"' TERM
  wait "$vm"
}

# follow KERNEL: what of its log is worth to be seen while it runs
follow() {
  grep --line-buffered -E '^( *--- FAIL: |vm-run: |panic: |@(kernel|package|status) )' | sed -u "s/^/[$1] /"
}

# summary KERNEL: counts leaves (a test with subtests is its subtests), a package that ended with a status
# but without a failed test as one failure, and names what failed and what was skipped, with its words
summary() {
  awk -v slow="$SLOW" -v asked="$1" '
    $1 == "@kernel" { kernel = $2 }
    $1 == "@package" { pkg = $2 }
    $1 == "@end" { end = $2 }
    match($0, /^ *--- (PASS|FAIL|SKIP): /) {
      n = pkg " " $3; state[n] = substr($2, 1, 4); last = n
      took[n] = substr($4, 2) + 0
      if ($2 ~ /FAIL/) bad[pkg]++
      for (p = n; sub(/\/[^\/]*$/, "", p);) { parent[p] = 1; if ($2 ~ /FAIL/) told[p] = 1 }
      next
    }
    /^=== |^@/ { said = ""; if ($2 == "RUN" || $2 == "CONT" || $2 == "NAME") at = pkg " " $3 }
    /^ +[a-z0-9_]+\.go:[0-9]+: / { word = $0; sub(/^ +/, "", word); if (at != "") words[at] = word }
    $1 == "@status" { status[$2] = $3; if ($3 != 0 && !bad[$2]) state[$2 " (ended with status " $3 ")"] = "FAIL" }
    END {
      for (n in state) if (!(n in parent) || state[n] == "FAIL" && !(n in told)) {
        count[state[n]]++
        if (state[n] == "FAIL") print "  FAIL " n
        if (state[n] == "SKIP") print "  SKIP " n ": " words[n] | "sort"
      }
      close("sort")
      if (slow > 0) {
        cmd = "sort -rn | head -n " slow
        for (n in took) if (n !~ /\//) printf "  %7.1f s %s\n", took[n], n | cmd
        close(cmd)
      }
      if (end != 0) { printf "  FAIL the guest ended with %s%s\n", end, end == 124 ? " (not done in time: VM_TIMEOUT)" : "" ; count["FAIL"] += !count["FAIL"] }
      printf "kernel %s: %d passed, %d failed, %d skipped\n", kernel == "" ? asked : kernel, count["PASS"], count["FAIL"], count["SKIP"]
      exit count["FAIL"] || !count["PASS"]
    }' "$out/$1.log"
}

# --- JOBS kernels at a time
# shellcheck disable=SC2046
trap 'trap - INT TERM; kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM
for k in $KERNELS; do
  : >"$out/$k.log"
  while [ "$(jobs -rp | wc -l)" -ge $((2 * JOBS)) ]; do wait -n || true; done
  one "$k" &
  tail -n +1 -F --pid=$! "$out/$k.log" 2>/dev/null | follow "$k" &
done
wait

status=0
for k in $KERNELS; do
  echo
  summary "$k" || status=1
done
echo "$status" >"$out/status"
echo "logs: $out/KERNEL.log"
exit "$status"
