#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make test-containerd: pods of a real containerd, made by CRI through a conflist with culvert alone.
#
#   run.sh [2|1]   containerd 2.x built from its Go module, with a list of CNI 1.1.0; Debian's 1.x (1.6), with one
#                  of 1.0.0, beyond which it does not go: no STATUS. Without an argument one after the other.
#
# Installs and builds what is missing (kept in W, default /tmp/culvert-lab), starts one node with
# containerd in namespaces of its own, and prints a line per check. What containerd said to the plugin
# is recorded by a stand-in (test/lab/cni-record.sh) and shown. Everything made is torn down at the end,
# also on an interrupt; the logs stay in W/last-containerd-MAJOR. KEEP=1 leaves the node up to look at.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$here/lib.sh"
. "$here/addresses.sh"
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 1; }
if [ $# = 0 ]; then
  st=0
  for major in 2 1; do "$0" $major || st=1; done
  exit $st
fi
mkdir -p "$W"
exec 8>"$W/lock"
flock 8

N=n1 POD4=10.200.1 POD6=fd00:200:1:
NODE4=$LAB_NET4.11 NODE6=${LAB_NET6}11 OUT4=$LAB_NET4.1 OUT6=${LAB_NET6}1
D=$(node_dir "$N") BIN=$D/cni-bin NETD=$D/net.d CALLS=$D/cni-bin/culvert.calls LOG=$D/culvert.log
TEMPLATE=$D/culvert.template
PIN=/sys/fs/bpf/culvert DATA=/run/cni/host-local
outside='' KEPT=$W/last-containerd-$1
case $1 in
  2) export CTD=$W/bin; version=1.1.0 ;;
  1) export CTD=$W/debian-containerd/usr/bin; version=1.0.0 ;;
  *) echo "usage: run.sh [2|1]" >&2; exit 2 ;;
esac
# asks STATUS: only since CNI 1.1.0
asks_status() { [ "$version" = 1.1.0 ]; }

cleanup() {
  local st=$?
  trap - EXIT INT TERM HUP
  set +e
  keep_logs
  if [ -n "$outside" ]; then kill "$outside"; fi
  if [ -n "${KEEP:-}" ]; then echo "# kept: test/lab/node-exec.sh $N ...; test/lab/runtime-down.sh $N ends it"; exit "$st"; fi
  "$LAB/runtime-down.sh" "$N" 8>&-
  exit "$st"
}
keep_logs() {
  rm -rf "$KEPT"; mkdir -p "$KEPT"
  cp "$D"/{culvert.log,containerd.log,init.log} "$CALLS" "$KEPT/" 2>/dev/null
}

prepare() {
  "$root/test/install-deps.sh" base runtime
  "$LAB/build-runtime.sh"
  asks_status || "$LAB/debian-containerd.sh"
  "$LAB/make-images.sh"
  make -s -C "$root" build ref
}

start_node() {
  "$LAB/runtime-down.sh" "$N" 8>&- # of a run that was killed
  mkdir -p "$BIN" "$NETD"
  cp "$root"/bin/ref/{host-local,loopback} "$BIN/"
  cp "$root/bin/culvert" "$BIN/culvert.real"
  cp "$LAB/cni-record.sh" "$BIN/culvert"
  : >"$CALLS"
  conflist '{}'
  CONF_TEMPLATE=$TEMPLATE "$LAB/runtime-up.sh" "$N" 1 8>&-
  # other hosts know the way to the node's pods
  ip -n "$SW" route replace "$POD4.0/24" via "$NODE4"
  ip -n "$SW" -6 route replace "$POD6:/64" via "$NODE6"
  # not sw_exec: $! would be the shell that runs the function, and outlived by what it started
  POD=outside setpriv --pdeathsig KILL nsenter --net="/run/netns/$SW" "$W/bin/labpod" serve 8>&- & outside=$!
}

# conflist JSON: write the configuration, culvert alone, with JSON's keys on top
conflist() {
  jq -n --argjson more "$1" --arg v "$version" --arg log "$LOG" --arg data "$DATA" --arg pin "$PIN" \
    --arg r4 "$POD4.0/24" --arg r6 "$POD6:/64" '
    {cniVersion: $v, name: "culvert-lab", plugins: [{
      type: "culvert", pinPath: $pin, logFile: $log, logLevel: "debug",
      capabilities: {portMappings: true, bandwidth: true, ips: true, mac: true, dns: true, ipRanges: true,
        aliases: true, cgroupPath: true, infinibandGUID: true, "io.kubernetes.cri.pod-annotations": true},
      ipam: {type: "host-local", dataDir: $data, ranges: [[{subnet: $r4}], [{subnet: $r6}]],
        routes: [{dst: "0.0.0.0/0"}, {dst: "::/0"}]}} + $more]}' >"$NETD/conflist.new"
  # Renamed within the directory: containerd 2.4 reloads on write, rename and remove events there, and a
  # file that comes from elsewhere is none of these.
  mv "$NETD/conflist.new" "$NETD/10-culvert.conflist"
}

test_status() {
  check "the network is ready" ready
  asks_status || { check "STATUS is not asked for" test "$(calls STATUS | jq -s length)" = 0; return; }
  check "STATUS was asked of culvert, not assumed" test "$(calls STATUS | jq -s length)" -gt 0
}

test_address() {
  local ns if4 if6
  check "a pod sandbox starts" start_pod web '{port_mappings: [
      {protocol: 0, container_port: 8080, host_port: 18080},
      {protocol: 1, container_port: 8081, host_port: 18081},
      {protocol: 0, container_port: 8080, host_port: 18082, host_ip: "'"$NODE4"'"},
      {protocol: 0, container_port: 8080, host_port: 18083, host_ip: "'"$NODE6"'"}]}'
  check "a second pod starts, with bandwidth annotations" start_pod limited \
    '{annotations: {"kubernetes.io/ingress-bandwidth": "20M", "kubernetes.io/egress-bandwidth": "10M"}}'
  [ "$failed" = 0 ] || { summary; exit 1; } # the rest needs these pods
  A4=$(pod_ip web 4) A6=$(pod_ip web 6) B4=$(pod_ip limited 4) B6=$(pod_ip limited 6)
  check "CRI reports an address of each family's range" test "${A4%.*} ${A6%::*}" = "$POD4 ${POD6%:}"
  ns=$(pod_netns web)
  if4=$(node_exec "$N" nsenter --net="$ns" ip -4 -o addr show eth0) if6=$(node_exec "$N" nsenter --net="$ns" ip -6 -o addr show eth0)
  check "the pod's eth0 has the address as a /32" has "$if4" "inet $A4/32 "
  check "the pod's eth0 has the address as a /128" has "$if6" "inet6 $A6/128 "
  local a p
  for a in "$A4" "[$A6]"; do
    p=$(family "$a")
    check "$p: the node reaches the pod" answers web "node" get "http://$a:8080/"
    check "$p: another host reaches the pod" answers "web $(outside_ip "$p")" sw get "http://$a:8080/"
  done
  check "IPv4: the pod reaches another host" answers "outside $A4" web get "http://$OUT4:8080/"
  check "IPv6: the pod reaches another host" answers "outside $A6" web get "http://[$OUT6]:8080/"
  check "IPv4: the pod reaches the other pod" answers "limited $A4" web get "http://$B4:8080/"
  check "IPv6: the pod reaches the other pod" answers "limited $A6" web get "http://[$B6]:8080/"
}

test_runtime_config() {
  local rc
  rc=$(calls ADD web | jq -c .stdin.runtimeConfig)
  echo "# runtimeConfig of the first pod: $rc"
  echo "# runtimeConfig of the second:    $(calls ADD limited | jq -c .stdin.runtimeConfig)"
  check "containerd passed 4 port mappings" test "$(jq '.portMappings | length' <<<"$rc")" = 4
  check "containerd passed both rates" test "$(calls ADD limited |
    jq -r '.stdin.runtimeConfig.bandwidth | with_entries(.key |= ascii_downcase) | "\(.ingressrate) \(.egressrate)"')" = "20000000 10000000"
  check "the configuration was culvert alone: no prevResult at ADD" test "$(calls ADD web | jq '.stdin | has("prevResult")')" = false
}

test_hostports() {
  local a p
  for a in "$NODE4" "[$NODE6]"; do
    p=$(family "$a")
    check "$p: hostPort TCP from another host" answers "web $(outside_ip "$p")" sw get "http://$a:18080/"
    check "$p: hostPort UDP from another host" answers "web $(outside_ip "$p")" sw udp "$a:18081"
    check "$p: hostPort TCP from the node by its own address" answers web node get "http://$a:18080/"
    check "$p: hostPort UDP from the node by its own address" answers web node udp "$a:18081"
    check "$p: hostPort TCP from another pod" answers web limited get "http://$a:18080/"
    check "$p: hostPort UDP from another pod" answers web limited udp "$a:18081"
  done
  check "IPv4: hostPort with hostIP, called there" answers web sw get "http://$NODE4:18082/"
  check "IPv6: hostPort with hostIP, called there" answers web sw get "http://[$NODE6]:18083/"
  check "IPv4: a hostIP of the other family does not listen here" refused "http://$NODE4:18083/"
  check "IPv6: a hostIP of the other family does not listen here" refused "http://[$NODE6]:18082/"
  check "culvertctl hostports lists them" has "$(ctl hostports | jq -c .)" 18080
  check "culvertctl flows lists flows" test "$(ctl flows | jq length)" -gt 0
  check "culvertctl status names no fault" same "$(ctl status | jq -c .faults)" "[]"
  local before; before=$(leftovers)
  check "a hostPort that a pod holds is refused to another" fails "18080" start_pod thief '{port_mappings: [{protocol: 0, container_port: 8080, host_port: 18080}]}'
  delete_pod thief >/dev/null 2>&1
  check "the refused pod left nothing" same "$(leftovers)" "$before"
  check "IPv4: hostPort still answers" answers web sw get "http://$NODE4:18080/"
}

test_bandwidth() {
  local l; l=$(ctl limits)
  check "culvertctl limits shows both rates" test "$(jq '[.. | numbers | select(. == 20000000 or . == 10000000)] | unique | length' <<<"$l")" = 2
  check "a shaper stands before the pod" has "$(node_exec "$N" tc qdisc show)" "qdisc tbf"
  check "a shaper stands in the pod" has "$(node_exec "$N" nsenter --net="$(pod_netns limited)" tc qdisc show)" "qdisc tbf"
  check "IPv4: 20 Mbit/s into the pod from another host" near 20000000 sw push "$B4:8083" 4
  check "IPv6: 10 Mbit/s out of the pod to another host" near 10000000 sw pull "http://[$B6]:8080/source" 4
  check "IPv4: 20 Mbit/s into the pod from a pod on the node" near 20000000 web push "$B4:8083" 4
  check "IPv4: 10 Mbit/s out of the pod to the node" near 10000000 node pull "http://$B4:8080/source" 4
  check "a pod without annotations is not limited" above 40000000 sw pull "http://$A4:8080/source" 2
}

test_no_rules() {
  check "no nft or iptables rule exists" same "$(node_exec "$N" nft list ruleset)" ""
}

test_removal() {
  check "the pods are stopped" stop_pod web limited
  check "hostPort is closed" refused "http://$NODE4:18080/"
  check "the pods are removed" delete_pod web limited
  check "containerd sent DEL twice for a pod" test "$(calls DEL web | jq -s length)" -ge 2
  check "no call for a pod but the refused ADD ended in an error" same "$(jq -c 'select(.status != 0 and .env.CNI_COMMAND != "STATUS"
    and (.env.CNI_ARGS // "" | contains("K8S_POD_NAME=thief") | not))' "$CALLS")" ""
  check "no flow is listed" same "$(ctl flows | jq -c '.[]?')" ""
  check "nothing is left: veth, route, map row, lease" same "$(leftovers)" ""
}

test_broken() {
  conflist '{"uplinks": ["nosuch0"]}'
  if asks_status; then
    check "STATUS: an uplink that does not exist makes the network not ready" wait_for 10 "not ready" not_ready
    echo "# NetworkReady: $(condition | jq -c .)"
    check "STATUS: the message names the uplink" has "$(condition | jq -r .message)" nosuch0
  fi
  check "a pod is refused meanwhile" fails nosuch0 start_pod early '{}'
  delete_pod early >/dev/null 2>&1
  conflist '{}'
  check "ready again once it is put right" wait_for 10 ready ready
  check "a pod starts again" start_pod again '{}'
  check "IPv4: and is reached" answers again sw get "http://$(pod_ip again 4):8080/"
  check "and is removed" delete_pod again
  check "nothing is left" same "$(leftovers)" ""
}

trap cleanup EXIT
trap 'exit 130' INT TERM HUP
prepare
start_node
echo "# $("$CTD/containerd" --version 2>/dev/null | cut -d' ' -f1,3), kernel $(uname -r)"
set +e # a check that fails is counted
test_status
test_address
test_runtime_config
test_hostports
test_bandwidth
test_no_rules
test_removal
test_broken
test_full_pool
test_pools
test_template
summary
