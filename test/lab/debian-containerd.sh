#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpack Debian's containerd (1.6 in Debian 12) into W/debian-containerd, without installing it: a
# package that is installed would start it.
#
#   debian-containerd.sh        W (default /tmp/culvert-lab)
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
to=$W/debian-containerd
[ ! -x "$to/usr/bin/containerd" ] || exit 0
mkdir -p "$W"
tmp=$(mktemp -d "$W/deb.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
(cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download containerd) ||
  { apt-get -qq update && cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download containerd; }
dpkg -x "$tmp"/containerd_*.deb "$tmp/x"
rm -rf "$to"
mv "$tmp/x" "$to"
