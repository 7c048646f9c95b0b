#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# stage.sh: the steps of the demo, run by demo.sh as the first process of namespaces of its own. It only
# builds up: what tears down is the end of those namespaces.
set -euo pipefail

bin=$PWD/bin
state=/var/lib/culvert-demo # on a tmpfs of the stage
pins=/sys/fs/bpf/culvert/v1 # the default pinPath, on a bpffs of the stage
node4=192.0.2.1 node6=2001:db8::1 outside4=192.0.2.2 outside6=2001:db8::2
ingress=20000000 egress=10000000
export PATH="$bin:$bin/ref:$PATH" LC_ALL=C
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

# --- how it is shown ---
number=0
step() { number=$((number + 1)); printf '\n== %d. %s\n' "$number" "$*"; }
indent() { sed 's/^/   /'; }
fail() {
  printf 'demo: %s\n' "$*" >&2
  [ ! -s "$state/culvert.log" ] || { echo "demo: culvert's log:"; tail -n 20 "$state/culvert.log"; } >&2
  exit 1
}
trap '[ "$BASH_SUBSHELL" != 0 ] || fail "step $number: line $LINENO: $BASH_COMMAND"' ERR
set -E

# Not "ip netns exec": it mounts /sys anew and so hides the pins.
within() { nsenter --net="$state/ns/$1" -- "${@:2}"; }
on() { # HOST COMMAND...: show it and what it prints
  printf '   %s# %s\n' "$1" "${*:2}"
  within "$@" 2>&1 | indent
}
expect() { # WANT HOST COMMAND...: as on, and it prints just that
  local want=$1 got; shift
  printf '   %s# %s\n' "$1" "${*:2}"
  got=$(within "$@" 2>&1) || true
  [ -n "$got" ] || got='(nothing)'
  printf '%s\n' "$got" | indent
  [ "$got" = "$want" ] || fail "expected: $want"
}
http() { local want=$1 host=$2; expect "$want" "$host" curl -sS --max-time 5 "http://$3"; }
udp() { local want=$1 host=$2; expect "$want" "$host" who -ask "$3"; }
poll() { # COMMAND...: until it succeeds
  local end=$((SECONDS + 10))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "not within 10 s: $*"
    sleep 0.05
  done
}
listens() { within "$1" ss -Hltn "sport = :$2" | grep -q .; }

# --- what is shown ---
ground() {
  mount -t tmpfs -o mode=0700 tmpfs /var/lib
  [ -d /sys/fs/bpf ] || mount -t sysfs sysfs /sys
  mount -t bpf bpf /sys/fs/bpf
  mkdir -p "$state"/{ns,conf}
  local ns
  for ns in node outside a b; do
    : >"$state/ns/$ns"
    unshare --net="$state/ns/$ns" true
    within "$ns" ip link set lo up
  done
}

wire() {
  on node ip link add eth0 type veth peer name eth0 netns "$state/ns/outside"
  on node ip link set eth0 up
  on outside ip link set eth0 up
  on node ip addr add "$node4/24" dev eth0
  on node ip addr add "$node6/64" dev eth0 nodad
  on outside ip addr add "$outside4/24" dev eth0
  on outside ip addr add "$outside6/64" dev eth0 nodad
  on node ip route add default via "$outside4"
  on node ip route add default via "$outside6"
  on outside ip route add 10.88.0.0/24 via "$node4"
  on outside ip route add fd00:88::/64 via "$node6"
}

conflist() {
  cat >"$state/conf/demo.conflist" <<JSON
{
  "cniVersion": "1.1.0",
  "name": "demo",
  "plugins": [{
    "type": "culvert",
    "capabilities": {"portMappings": true, "bandwidth": true},
    "logFile": "$state/culvert.log",
    "ipam": {
      "type": "host-local",
      "dataDir": "$state/ipam",
      "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]
    }
  }]
}
JSON
  indent <"$state/conf/demo.conflist"
}

cni() { # VERB POD [CAP_ARGS]: through cnitool, as a runtime would through libcni
  local quoted=${3:+"CAP_ARGS='$3' "}
  printf '   node# %scnitool %s demo %s\n' "$quoted" "$1" "$state/ns/$2"
  CNI_PATH="$bin:$bin/ref" NETCONFPATH="$state/conf" CAP_ARGS=${3:-} \
    within node cnitool "$1" demo "$state/ns/$2" >"$state/result" 2>"$state/error" ||
    fail "$(cat "$state/result" "$state/error")"
}
address() { # FAMILY: out of the result of the ADD before
  jq -r --argjson six "$([ "$1" = 6 ] && echo true || echo false)" \
    '.ips[].address | select(contains(":") == $six) | split("/")[0]' "$state/result"
}

add_a() {
  cni add a '{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8053, "containerPort": 80, "protocol": "udp"}]}'
  jq . "$state/result" | indent
  a4=$(address 4) a6=$(address 6)
  within a who -name a &
  poll listens a 80
}

add_b() {
  cni add b "{\"bandwidth\": {\"ingressRate\": $ingress, \"egressRate\": $egress}}"
  jq -c '{ips, routes}' "$state/result" | indent
  b4=$(address 4) b6=$(address 6)
  within b who -name b &
  within b iperf3 -s >/dev/null &
  poll listens b 80
  poll listens b 5201
}

hostport() {
  http "a sees $outside4" outside "$node4:8080"
  http "a sees $outside6" outside "[$node6]:8080"
  udp "a sees $outside4" outside "$node4:8053"
  udp "a sees $outside6" outside "[$node6]:8053"
  http "a sees $node4" node "$node4:8080"
  http "a sees $node6" node "[$node6]:8080"
  http "a sees $b4" b "$node4:8080"
  http "a sees $b6" b "[$node6]:8080"
}

# One TCP stream after the first second, which the burst may serve. Its headers are in the limit too, so
# 0.957 of it is all that can be had. A busy machine gets three tries.
measure() { # DIRECTION LIMIT [-R]
  for _ in 1 2 3; do
    printf '   outside# iperf3 -C cubic -c %s -O 1 -t 3 %s\n' "$b4" "${3:-}"
    within outside iperf3 -J --connect-timeout 3000 -C cubic -c "$b4" -O 1 -t 3 "${@:3}" >"$state/iperf" ||
      fail "iperf3: $(jq -r '.error // "no result"' "$state/iperf")"
    jq -r '.end.sum_received.bits_per_second' "$state/iperf" | awk -v what="$1" -v limit="$2" '{
      printf "   %s: limit %.1f Mbit/s, TCP goodput %.2f Mbit/s, ratio %.3f\n", what, limit / 1e6, $1 / 1e6, $1 / limit
      exit !($1 < 1.02 * limit && $1 > 0.85 * limit)
    }' && return
  done
  fail "the $1 limit does not hold"
}

# Pod b sends from an address that is not its own, and somebody watches.
watched() {
  printf '   node# culvertctl trace --count 1 &\n'
  within node culvertctl trace --count 1 >"$state/trace" 2>&1 &
  poll grep -q following "$state/trace"
  on b ip addr add 198.51.100.7/32 dev eth0
  expect '(nothing)' b curl -s --max-time 1 --interface 198.51.100.7 "http://$a4"
  poll grep -q 'drop source tcp 198.51.100.7' "$state/trace"
  indent <"$state/trace"
  on node culvertctl counters
}

# What passes, while somebody loads from b for a few seconds.
live() {
  printf '   outside# iperf3 -C cubic -c %s -t 4 -R &\n' "$b4"
  within outside iperf3 --connect-timeout 3000 -C cubic -c "$b4" -t 4 -R >/dev/null &
  local load=$!
  poll busy
  on node culvertctl top --once
  wait "$load"
}
busy() { within outside ss -Htn "dport = :5201" | awk '{n++} END {exit n < 2}'; } # control and data

views() {
  local map
  for map in pods hostports limits; do on node bpftool map dump pinned "$pins/maps/$map"; done
  for map in status pods hostports limits flows; do on node culvertctl "$map"; done
}

deleted() { # nothing of the pods is left on the node
  local map
  cni del a
  cni del b
  for map in pods ifaces hostports limits; do
    expect '[]' node bpftool -j map dump pinned "$pins/maps/$map"
  done
  expect '(nothing)' node sh -c 'ip -br link | grep -v -e ^lo -e ^eth0'
  expect '(nothing)' node find "$state/ipam" -name '[1-9f]*'
}

step "A node, an outside host and two empty pods: network namespaces on a bpffs of their own"
ground
wire
step "Its CNI configuration"
conflist
step "Pod a, with a hostPort for TCP and one for UDP: ADD by the CNI protocol"
add_a
step "Pod b, with a limit in each direction"
add_b
step "Pod to pod"
http "a sees $b4" b "$a4"
http "b sees $a6" a "[$b6]"
step "The hostPort from outside, from the node and from the other pod: a sees who called"
hostport
step "The limits of b, measured"
measure ingress "$ingress"
measure egress "$egress" -R
step "Who takes what, live"
live
step "A drop, as it happens, and counted"
watched
step "State lives in kernel maps: as bpftool and culvertctl show them"
views
step "No rule exists because of us"
expect '(nothing)' node nft list ruleset
expect '(nothing)' node iptables-save
expect '(nothing)' node ip6tables-save
step "DEL of both pods: no row, no device, no address stays"
deleted
