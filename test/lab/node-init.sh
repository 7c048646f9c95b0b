#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Becomes PID 1 of a node; called by runtime-up.sh through unshare.
set -euo pipefail
hostname "$1"
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
mkdir -p /run/netns /run/lock /run/containerd /run/over/{up,work}
# libcni caches results in /var/lib/cni, wherever containerd's own root is
mount -t overlay -o lowerdir=/var/lib,upperdir=/run/over/up,workdir=/run/over/work overlay /var/lib
mount -t proc proc /proc
touch /run/lab-node
# PID 1's duties: to stay, and to reap (bash reaps what it adopts).
trap 'exit 0' TERM
while :; do sleep 3600 & wait $! || true; done
