#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-init.sh NODE DIR: becomes PID 1 of a node; called by runtime-up.sh through unshare.
set -euo pipefail
hostname "$1"
D=$2
# /sys is mounted anew, so that /sys/class/net is that of this network namespace; the cgroups stay.
cg=$(mktemp -d)
mount --rbind /sys/fs/cgroup "$cg"
umount -l /sys 2>/dev/null || true
mount -t sysfs sysfs /sys
mount --rbind "$cg" /sys/fs/cgroup
umount -l "$cg"
rmdir "$cg"
mount -t bpf -o mode=700 bpf /sys/fs/bpf
mount -t tmpfs -o mode=755 tmpfs /run
# kubelet links its containers' logs there, wherever they are
mount -t tmpfs -o mode=755 tmpfs /var/log
mkdir -p /run/netns /run/lock /run/containerd
# over DIRECTORY: what the node writes there goes to its disk
over() {
  local d=$D/disk$1
  mkdir -p "$d"/{up,work}
  mount -t overlay -o "lowerdir=$1,upperdir=$d/up,workdir=$d/work" overlay "$1"
}
# libcni caches results in /var/lib/cni, wherever containerd's own root is
over /var/lib
over /etc
over /opt
mkdir -p /etc/cni/net.d /opt/cni/bin /var/lib/kubelet
mount --bind "$D/net.d" /etc/cni/net.d
mount --bind "$D/cni-bin" /opt/cni/bin
mount -t proc proc /proc
# pods' volumes ask for propagation
mount --make-rshared /
touch /run/lab-node
# PID 1's duties: to stay, and to reap (bash reaps what it adopts).
trap 'exit 0' TERM
while :; do sleep 3600 & wait $! || true; done
