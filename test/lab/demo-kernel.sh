#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-kernel.sh [KERNEL]: the demo's steps under another kernel (6.1) in qemu. Packages and binaries are
# prepared here, since the guest has no network. No module is loaded beforehand: what culvert and the
# tools need, they must ask for, as on a real machine.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
"$root/test/install-deps.sh" base vm
make -s -C "$root" build ref
cd "$root"
export CULVERT_DEMO_PREPARED=1 VM_PASS="CULVERT_DEMO_PREPARED ${VM_PASS:-}" VM_TIMEOUT=${VM_TIMEOUT:-900} VM_MEM=${VM_MEM:-2048}
# The tree is the guest's to read: its writes below VM_SHARE alone would reach the host.
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
VM_SHARE=$share "$here/vm-run.sh" "${1:-6.1}" test/demo.sh
