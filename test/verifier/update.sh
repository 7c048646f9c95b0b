#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# update.sh [KERNEL...]: write counts.txt anew, by the kernels of make test-kernels and by this machine's.
# With arguments, by those kernels alone ("this" is this machine's). Root; a minute without KVM.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
[ $# -gt 0 ] || set -- 6.1 6.12 6.18 7 this
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
export PATH=$PATH:/usr/local/go/bin
cd "$here"
CGO_ENABLED=0 go test -c -o "$tmp/verifier.test" .
for k; do
  run=("$tmp/verifier.test" -test.count=1 -test.run 'TestPrivilegedCounts$' -test.v -update)
  # The guest may write where counts.txt is, and nowhere else.
  if [ "$k" = this ]; then
    "$root/test/bpffs.sh" "${run[@]}"
  else
    VM_SHARE=$here VM_CPUS=${VM_CPUS:-1} VM_MODULES=nf_conntrack VM_TIMEOUT=${VM_TIMEOUT:-600} "$root/test/lab/vm-run.sh" "$k" "${run[@]}"
  fi
done
cat counts.txt
