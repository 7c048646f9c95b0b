#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# limits.sh [-host]: all figures of docs/limits.md. Rates and latencies on this machine, with the reference
# plugin beside; then, unless -host is given, the table under other kernels in qemu, whose clock goes by
# instructions.
#
#   KERNELS  version prefixes or names                      [6.1 6.12 6.18]
#   VM_TIME  that a cell is measured in a guest             [2s]
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
: "${KERNELS:=6.1 6.12 6.18}" "${VM_TIME:=2s}"
cd "$root"
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
CGO_ENABLED=0 go build -o "$share/limit" ./test/bench/limit

test/bpffs.sh "$share/limit" -doc docs/limits.md
[ "${1:-}" != -host ] || exit 0
export VM_SHARE=$share VM_TIMEOUT=${VM_TIMEOUT:-3600} VM_MEM=${VM_MEM:-2048}
export VM_CLOCK=instructions
export VM_MODULES="veth sch_tbf sch_ingress cls_bpf nf_conntrack"
for k in $KERNELS; do
  cp docs/limits.md "$share/"
  nice "$here/vm-run.sh" "$k" "$share/limit" -only table -time "$VM_TIME" -doc "$share/limits.md"
  cp "$share/limits.md" docs/
done
