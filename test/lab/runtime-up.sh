#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Bring up one node: namespaces, a link to the switch, containerd, images. Idempotent.
#
#   runtime-up.sh NODE INDEX [IMAGE...]
#
# INDEX 1..200: the node's addresses LAB_NET4.(10+INDEX), LAB_NET6(10+INDEX), or of
# LAB_FAR4 and LAB_FAR6 (lib.sh).
# IMAGE: what of W/images, pod if none is named. CTD: the directory of containerd, its shim and ctr, 2.x or
# 1.x; default W/bin. REGISTRY=HOST:PORT: labreg, from which it pulls every image, whatever its name.
# CONF_TEMPLATE: what it makes a CNI list of when it is told the node's range; none.
#
# containerd reads CNI configuration from the node's /etc/cni/net.d, which is W/run/NODE/net.d, and plugins from
# its /opt/cni/bin, which is W/run/NODE/cni-bin.
# node-exec.sh runs something inside; runtime-down.sh removes it all.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
N=$1 I=$2 D=$(node_dir "$1") ns=$(node_ns "$1") CTD=${CTD:-$W/bin}
shift 2
[ $# -gt 0 ] || set -- pod
mkdir -p "$D"/{net.d,cni-bin,disk}

# --- network namespace and link to the switch
sw_up
if [ ! -e "/run/netns/$ns" ]; then
  ip netns add "$ns"
  # a node that reboots has the MAC address that it had: with another, its neighbours send to the old one for most of a minute
  ip -n "$SW" link add "p-$N" mtu "$LAB_MTU" type veth peer name eth0 address "$(printf '02:00:00:00:01:%02x' "$I")" mtu "$LAB_MTU" netns "$ns"
  ip -n "$SW" link set "p-$N" master "$(node_bridge "$I")" up
  ip -n "$ns" link set lo up
  ip -n "$ns" link set eth0 up
  ip -n "$ns" addr add "$(node4 "$I")/24" dev eth0
  ip -n "$ns" addr add "$(node6 "$I")/64" dev eth0 nodad
  ip -n "$ns" route replace default via "$(net4 "$I").1"
  ip -n "$ns" -6 route replace default via "$(net6 "$I")1"
fi
# --- its disk: of the machine's mount namespace, so that it is there after the node's end
mountpoint -q "$D/disk" || mount -t tmpfs -o mode=755 culvertlab "$D/disk"
# --- namespaces held by the node's PID 1
if ! node_alive "$N"; then
  setsid nsenter --net="/run/netns/$ns" unshare -m -u -i -p --fork --kill-child \
    "$LAB/node-init.sh" "$N" "$D" >"$D/init.log" 2>&1 </dev/null &
  echo $! >"$D/unshare.pid"
  # the child of unshare is the node's PID 1, seen from here
  wait_for 10 "node init" sh -c "pgrep -P $(cat "$D/unshare.pid") >$D/pid1"
  wait_for 10 "node init" node_alive "$N"
fi
# --- containerd. ctr would wait 10 s for a socket that is not there yet, so look first.
ctd_ok() { node_exec "$N" test -S /run/containerd/containerd.sock && node_exec "$N" "$CTD/ctr" --connect-timeout 1s version; }
if ! ctd_ok >/dev/null 2>&1; then
  # restrict_oom_score_adj: runc fails on a negative one where root lacks CAP_SYS_RESOURCE.
  # The store lies on a tmpfs, which can be an overlay's upper directory wherever W is.
  case $("$CTD/containerd" --version) in
    *" "v2.*) cri=io.containerd.cri.v1 file=3 ;;
    *) cri=io.containerd.grpc.v1.cri file=2 ;;
  esac
  cat >"$D/containerd.toml" <<T
version = $file
root = "$D/disk/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
T
  if [ -n "${REGISTRY:-}" ]; then
    mkdir -p "$D/certs.d/_default"
    printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$REGISTRY" "$REGISTRY" >"$D/certs.d/_default/hosts.toml"
  fi
  if [ "$file" = 3 ]; then
    cat >>"$D/containerd.toml" <<T
[plugins.'$cri.images'.pinned_images]
  sandbox = "$IMAGE"
[plugins.'$cri.images'.registry]
  config_path = "$D/certs.d"
[plugins.'$cri.runtime']
  restrict_oom_score_adj = true
  [plugins.'$cri.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
    conf_template = "${CONF_TEMPLATE:-}"
T
  else
    cat >>"$D/containerd.toml" <<T
[plugins.'$cri']
  sandbox_image = "$IMAGE"
  restrict_oom_score_adj = true
  [plugins.'$cri'.cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
    conf_template = "${CONF_TEMPLATE:-}"
T
  fi
  cat >"$D/crictl.yaml" <<Y
runtime-endpoint: unix:///run/containerd/containerd.sock
image-endpoint: unix:///run/containerd/containerd.sock
timeout: 30
Y
  node_exec "$N" env PATH="$CTD:$W/bin:$PATH" setsid sh -c \
    "exec '$CTD/containerd' -c '$D/containerd.toml' >'$D/containerd.log' 2>&1 </dev/null & echo \$! >/run/containerd.pid"
  wait_for 30 containerd ctd_ok || { tail -n 20 "$D/containerd.log" >&2; exit 1; }
fi
for image; do
  # a node that was here before has it on its disk
  [ ! "$D/disk/$image.imported" -nt "$W/images/$image.tar" ] || continue
  # quietly: ctr repeats containerd's warnings
  node_exec "$N" "$CTD/ctr" -n k8s.io images import "$W/images/$image.tar" >"$D/import.log" 2>&1 || { cat "$D/import.log" >&2; exit 1; }
  touch "$D/disk/$image.imported"
done
