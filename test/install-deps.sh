#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install-deps.sh GROUP...: install the Debian packages of these groups that are missing.
# Says nothing and asks apt for nothing when all are there; so it may run before every target.
set -euo pipefail

declare -A groups=(
  # what a fresh machine may lack before anything else works
  [tools]="make git ca-certificates"
  # what the demo and the tests execute; building needs Go alone (the BPF objects are committed)
  [base]="iproute2 iptables nftables bpftool iperf3 conntrack tcpdump jq curl kmod procps util-linux ca-certificates"
  # what makes the BPF objects anew, byte for byte
  [generate]="clang-19 llvm-19 clang-format-19"
  # what boots other kernels
  [vm]="qemu-system-x86 kmod iproute2 xz-utils zstd cpio gzip debian-archive-keyring"
  # what a Kubernetes cluster needs beside that, on its nodes and in its tests' images
  [kubernetes]="bind9-dnsutils busybox-static conntrack dash ipset iperf iptables iputils-ping netcat-openbsd openssl socat wget"
  # what a node with containerd needs beside its binaries, which are built from Go modules
  [runtime]="runc iproute2 jq curl socat procps util-linux kmod bpftool nftables ca-certificates"
)

usage() { echo "usage: install-deps.sh ${!groups[*]}" >&2; exit 2; }

missing() { # PACKAGE...: those that dpkg does not hold as installed
  local p
  for p; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
  done
}

[ $# -gt 0 ] || usage
wanted=
for group; do
  [ -n "${groups[$group]:-}" ] || usage
  wanted+=" ${groups[$group]}"
done

if ! command -v dpkg-query >/dev/null; then
  echo "install-deps: not a Debian machine; install these yourself:$wanted" >&2
  exit 0
fi
read -ra wanted <<<"$wanted"
mapfile -t packages < <(missing "${wanted[@]}" | sort -u)
[ ${#packages[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "install-deps: needs root to install: ${packages[*]}" >&2
  exit 1
fi

echo "installing: ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" </dev/null >>"$log" 2>&1; }
apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
# A failed update is not the end: one unreachable source of several is common, and the lists of the
# others do.
quietly "${apt[@]}" update || true
quietly "${apt[@]}" install -y --no-install-recommends "${packages[@]}" || { cat "$log" >&2; exit 1; }
