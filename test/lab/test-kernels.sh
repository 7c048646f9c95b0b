#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make test-kernels: the datapath's tests under other kernels, in qemu (vm-run.sh). They are compiled
# here, as the guest has no network, and run there from their package's directory, one boot a kernel.
#
#   KERNELS  version prefixes or names          [6.1 6.12]
#   PKGS     packages                           [./bpf/... ./loader/... ./test/e2e/...]
#   RUN      filter, as go test -run            []
#   TAGS     build tags                         []
#   VM_TIMEOUT, VM_MEM and what else vm-run.sh reads. Without KVM a guest is 10 to 30 times slower than
#   the host: raise VM_TIMEOUT where the machine is busy.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
: "${KERNELS:=6.1 6.12}" "${PKGS:=./bpf/... ./loader/... ./test/e2e/...}" "${RUN:=}" "${TAGS:=}"
: "${CULVERT_LAB:=/tmp/culvert-lab}"
export VM_TIMEOUT=${VM_TIMEOUT:-1500} VM_MEM=${VM_MEM:-2048}
# Loaded beforehand, as the guest's tools ask for some of them by names that no alias leads to.
export VM_MODULES=${VM_MODULES:-veth sctp bridge vxlan dummy ifb sch_ingress cls_bpf act_bpf act_mirred act_gact sch_tbf
  nf_conntrack nf_tables nf_nat nft_ct nft_nat nft_chain_nat nft_masq nft_redir nft_reject_inet nft_compat
  ip_tables ip6_tables iptable_nat iptable_filter ip6table_nat ip6table_filter xt_conntrack xt_MASQUERADE
  xt_nat xt_mark xt_comment xt_addrtype xt_multiport tcp_bbr}
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
# guest LIST RUN SECONDS
uname -r | sed 's/^/@kernel /'
while read -r name dir; do
  echo "@package $name"
  cd "$dir" && "${1%/*}/$name.test" -test.v -test.count=1 -test.timeout="$3s" ${2:+-test.run "$2"} </dev/null
  echo "@status $name $?"
done <"$1"
G
chmod +x "$out/guest"

# summary FILE: counts leaves (a test with subtests is its subtests), a package that ended with a status
# but without a failed test as one failure, and names what failed
summary() {
  awk '
    $1 == "@kernel" { kernel = $2 }
    $1 == "@package" { pkg = $2 }
    match($0, /^ *--- (PASS|FAIL|SKIP): /) {
      n = pkg " " $3; state[n] = substr($2, 1, 4)
      if ($2 ~ /FAIL/) bad[pkg]++
      for (p = n; sub(/\/[^\/]*$/, "", p);) { parent[p] = 1; if ($2 ~ /FAIL/) told[p] = 1 }
    }
    $1 == "@status" { if ($3 != 0 && !bad[$2]) state[$2 " (ended with status " $3 ")"] = "FAIL" }
    END {
      for (n in state) if (!(n in parent) || state[n] == "FAIL" && !(n in told)) {
        count[state[n]]++
        if (state[n] == "FAIL") print "  FAIL " n
      }
      printf "kernel %s: %d passed, %d failed, %d skipped\n", kernel, count["PASS"], count["FAIL"], count["SKIP"]
      exit count["FAIL"] || !count["PASS"]
    }' "$1"
}

status=0
for k in $KERNELS; do
  echo "--- kernel $k"
  log=$out/$k.log st=0
  VM_SHARE=$out "$here/vm-run.sh" "$k" "$out/guest" "$out/list" "$RUN" "$VM_TIMEOUT" 8>&- 2>&1 | tee "$log" || st=$?
  [ "$st" = 0 ] || { echo "kernel $k: the guest ended with $st (124: not done in $VM_TIMEOUT s)" >&2; status=1; }
done
echo
for k in $KERNELS; do summary "$out/$k.log" || status=1; done
exit "$status"
