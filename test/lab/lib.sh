# SPDX-License-Identifier: Apache-2.0
#
# Common helpers of the lab's scripts (sourced, not run).
#
# A "node" is a set of namespaces (net, mount, uts, pid, ipc) held by one process. To its programs it
# looks like a machine of its own: own /run, /sys of its network namespace, own bpffs. Nodes hang on
# a bridge in the namespace culvertlab-sw, which stands for every other host and has no way out: the
# machine's own network namespace is not touched. What a node writes lies in its /run, a tmpfs, or in
# W/run/NODE; both go with it.
# shellcheck shell=bash disable=SC2034
: "${W:=${CULVERT_LAB:-/tmp/culvert-lab}}"
: "${LAB_NET4:=10.123.0}" "${LAB_NET6:=fd00:123::}" # /24 and /64 of the node network
: "${LAB_MTU:=1500}"
IMAGE=localhost/culvert-lab/pod:1 AGNHOST=localhost/culvert-lab/agnhost:1
SW=culvertlab-sw
LAB=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
export PATH="$PATH:/usr/local/go/bin:/usr/sbin:/sbin"

node_dir() { echo "$W/run/$1"; }
node_ns() { echo "culvertlab-$1"; }
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
  ip -n "$SW" link add br0 type bridge
  ip -n "$SW" addr add "$LAB_NET4.1/24" dev br0
  ip -n "$SW" addr add "${LAB_NET6}1/64" dev br0 nodad
  ip -n "$SW" link set br0 up
}
sw_down() { ip netns del "$SW" 2>/dev/null || true; }

# cg_clean PATH: remove a cgroup subtree in every hierarchy (the kernel refuses those in use)
cg_clean() {
  local d
  for d in /sys/fs/cgroup/*/"$1" /sys/fs/cgroup/"$1"; do
    if [ -d "$d" ]; then find "$d" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
  done
}
