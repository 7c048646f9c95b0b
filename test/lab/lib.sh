# SPDX-License-Identifier: Apache-2.0
#
# Common helpers of the lab's scripts (sourced, not run).
#
# A "node" is a set of namespaces (net, mount, uts, pid, ipc) held by one process. To its programs it
# looks like a machine of its own: own /run, /sys of its network namespace, own bpffs. Nodes hang on
# a bridge in the namespace culvertlab-sw, which stands for every other host and has no way out: the
# machine's own network namespace is not touched. There are two bridges, a subnet each, and culvertlab-sw is
# the router between them. What a node writes lies in its /run, or on its disk, a tmpfs at W/run/NODE/disk
# that outlives the node's namespaces as a disk outlives a reboot; runtime-down.sh removes both.
# shellcheck shell=bash disable=SC2034
: "${W:=${CULVERT_LAB:-/tmp/culvert-lab}}"
: "${LAB_NET4:=10.123.0}" "${LAB_NET6:=fd00:123::}" # /24 and /64 of the near network
: "${LAB_FAR4:=10.124.0}" "${LAB_FAR6:=fd00:124::}" # and of the far one: of nodes whose index ends in 3 or more
: "${LAB_MTU:=1500}"
IMAGE=localhost/culvert-lab/pod:1 AGNHOST=localhost/culvert-lab/agnhost:1
CULVERT=culvert:dev # as deploy/ names it
SW=culvertlab-sw
# of a cluster
CLUSTER_PODS=10.200.0.0/16,fd00:200::/56 CLUSTER_SERVICES=10.96.0.0/16,fd00:96::/112 CLUSTER_DNS=10.96.0.10
CLUSTER_URL=https://$LAB_NET4.11:6443
LAB=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
export PATH="$PATH:/usr/local/go/bin:/usr/sbin:/sbin"

node_dir() { echo "$W/run/$1"; }
node_ns() { echo "culvertlab-$1"; }
# nodes N: the names of the first N
nodes() { local i; for ((i = 1; i <= $1; i++)); do echo "n$i"; done; }
far() { [ $(($1 % 10)) -ge 3 ]; } # far INDEX
# net4 INDEX, net6 INDEX: the subnet of a node, without the last part of an address
net4() { if far "$1"; then echo "$LAB_FAR4"; else echo "$LAB_NET4"; fi; }
net6() { if far "$1"; then echo "$LAB_FAR6"; else echo "$LAB_NET6"; fi; }
node4() { echo "$(net4 "$1").$((10 + $1))"; }
node6() { echo "$(net6 "$1")$((10 + $1))"; }
node_pid() { cat "$W/run/$1/pid1" 2>/dev/null; }
node_alive() {
  local p
  p=$(node_pid "$1") && [ -n "$p" ] && [ -e "/proc/$p/root/run/lab-node" ]
}
# node_exec NODE CMD...: in all namespaces of the node. nsenter changes to /: use absolute paths.
node_exec() { local n=$1; shift; nsenter -t "$(node_pid "$n")" -m -u -n -p -i -- "$@"; }
# sw_exec CMD...: as another host on the node network. Not "ip netns exec", which hides the cgroups.
sw_exec() { nsenter --net="/run/netns/$SW" -- "$@"; }

# kubectl ARGS...: from another host on the node network, as cluster-up.sh's administrator
kubectl() { sw_exec "$W/bin/kubectl" --kubeconfig="$(node_dir cluster)/admin.conf" "$@"; }

# control_plane_start, control_plane_stop: on the first node's network, but not in its PID namespace: it is there
# after a reboot of the node. What it stored is kept.
control_plane_start() {
  local c; c=$(node_dir cluster)
  setsid nsenter --net="/run/netns/$(node_ns n1)" unshare -p --fork --kill-child \
    "$LAB/control-plane.sh" "$(node4 1)" "$CLUSTER_PODS" "$CLUSTER_SERVICES" >>"$c/control-plane.log" 2>&1 </dev/null &
  echo $! >"$c/pid"
  wait_for 90 "API server" kubectl get --raw /readyz
}
control_plane_stop() {
  local p
  p=$(cat "$(node_dir cluster)/pid" 2>/dev/null) || return 0
  # the number may be another process's by now
  { tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null | grep -q "$LAB/control-plane.sh" || return 0
  kill -9 "$p"
  wait_for 20 "end of the control plane" sh -c "! kill -0 $p 2>/dev/null"
}

wait_for() { # wait_for SECONDS WHAT CMD...
  local t=$1 what=$2 s=$SECONDS; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $((SECONDS - s)) -lt "$t" ] || { echo "timed out ($t s): $what" >&2; return 1; }
    sleep .2
  done
}

sw_up() {
  [ ! -e "/run/netns/$SW" ] || return 0
  ip netns add "$SW"
  ip -n "$SW" link set lo up
  local br i
  for i in 1 3; do
    br=$(node_bridge "$i")
    # its own, or the router's is that of a node, which goes with it: what others send to it is lost until it asks for them
    ip -n "$SW" link add "$br" address "02:00:00:00:00:0$i" type bridge
    ip -n "$SW" addr add "$(net4 "$i").1/24" dev "$br"
    ip -n "$SW" addr add "$(net6 "$i")1/64" dev "$br" nodad
    ip -n "$SW" link set "$br" up
  done
  # what a bridge passes on is no router's business
  sw_exec sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
    net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0
}
node_bridge() { if far "$1"; then echo br1; else echo br0; fi; } # node_bridge INDEX
sw_down() { ip netns del "$SW" 2>/dev/null || true; }

# cg_clean PATH: remove a cgroup subtree in every hierarchy (the kernel refuses those in use)
cg_clean() {
  local d
  for d in /sys/fs/cgroup/*/"$1" /sys/fs/cgroup/"$1"; do
    if [ -d "$d" ]; then find "$d" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
  done
}
