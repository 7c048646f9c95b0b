#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# chroot.sh [COMMAND...]: run COMMAND (default: make demo) in this tree as a fresh clone on a fresh
# Debian 12 with Go, make and git alone: neither packages, nor Go modules, nor build results are there.
#
#   CHROOT   where the untouched Debian is kept; made by debootstrap if absent [/tmp/culvert-chroot]
#
# Every run sees that Debian through an overlay of its own, in a mount namespace of its own; both go with
# it. The kernel, the network (for downloads) and Go are this machine's, the mirror is apt's.
set -euo pipefail

: "${CHROOT:=/tmp/culvert-chroot}"
repo=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)

sources() { # the machine's own Debian sources, one "deb" line each
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) main' 'Created-By: Packages' 'Component: main' |
    grep -E '/debian(-security)?/? bookworm' | sort -u
}

base() { # built aside and renamed, so that a broken one is never taken
  [ ! -d "$CHROOT" ] || return 0
  command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get -qq install -y debootstrap >/dev/null
  local mirror
  mirror=$(sources | awk '$3 == "bookworm" { print $2; exit }')
  [ -n "$mirror" ] || { echo "chroot: apt has no source for bookworm (apt-get update?)" >&2; exit 1; }
  rm -rf "$CHROOT.new"
  debootstrap --variant=minbase --include=make,git,ca-certificates bookworm "$CHROOT.new" "$mirror"
  sources >"$CHROOT.new/etc/apt/sources.list"
  mv "$CHROOT.new" "$CHROOT"
}

present() { # the tree's files as they are now, committed or not
  local f
  git ls-files -co --exclude-standard | while read -r f; do [ ! -e "$f" ] || echo "$f"; done
}

# stage runs in a mount namespace of its own.
stage() {
  local root=$1 env; shift
  mount -t overlay -o "lowerdir=$CHROOT,upperdir=$root/upper,workdir=$root/work" overlay "$root/root"
  cd "$root/root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys # without what is mounted on it here: no bpffs
  mount --rbind /dev dev
  mkdir -p usr/local/go root/.config/go root/culvert
  mount --bind -o ro "$(go env GOROOT)" usr/local/go
  cp /etc/resolv.conf etc/resolv.conf
  # A machine behind a gateway that signs with its own authority trusts it in this file.
  cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ca-certificates.crt
  env=$(go env GOENV)
  [ ! -f "$env" ] || cp "$env" root/.config/go/env
  git clone -q --no-checkout "$repo" root/culvert
  (cd "$repo" && present | tar -c -T -) | tar -x -C root/culvert
  exec env -i HOME=/root TERM="${TERM:-dumb}" PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    GOPROXY="$(go env GOPROXY)" ${CI:+CI="$CI"} \
    chroot . /bin/sh -c 'cd /root/culvert && exec "$@"' sh "$@"
}

if [ "${1:-}" = --stage ]; then shift; stage "$@"; fi
base
[ $# -gt 0 ] || set -- make demo
run=$(mktemp -d "$CHROOT.run.XXXXXX")
trap 'rm -rf "$run"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$run"/{root,upper,work}
start=$SECONDS status=0
unshare --mount -- "${BASH_SOURCE[0]}" --stage "$run" "$@" || status=$?
echo "chroot: '$*' ended with $status after $((SECONDS - start)) s"
exit "$status"
