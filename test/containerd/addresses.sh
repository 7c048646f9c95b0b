# SPDX-License-Identifier: Apache-2.0
#
# What a runtime and culvert-ipam have to do with each other (sourced by run.sh, whose words and variables it uses): a pool
# that is full, and a list that containerd itself writes from a template when it is told the node's range.
# shellcheck shell=bash disable=SC2154

NEW4=10.200.7 NEW6=fd00:200:7: # the range that the node gets later

# two_addresses: an ipam section that has two addresses of each family to give
two_addresses() {
  jq -nc --arg r4 "$POD4" --arg r6 "$POD6" '{ipam: {type: "culvert-ipam", routes: [{dst: "0.0.0.0/0"}, {dst: "::/0"}], ranges:
    [[{subnet: "\($r4).0/24", rangeEnd: "\($r4).3"}], [{subnet: "\($r6):/64", rangeEnd: "\($r6):3"}]]}}'
}

# P8: no address is left. The node says so, and is well again as soon as one comes back.
test_full_pool() {
  conflist "$(two_addresses)"
  check "ready with culvert-ipam" wait_for 10 ready ready
  check "two pods start, as many as there are addresses" start_pods one two
  if asks_status; then
    check "STATUS: a full pool makes the network not ready" wait_for 10 "not ready" not_ready
    echo "# NetworkReady: $(condition | jq -c .)"
    check "STATUS: the message says that no address is left" has "$(condition | jq -r .message)" "no address is left"
  fi
  check "one pod more is refused" fails "no address is left" start_pod late '{}'
  delete_pod late >/dev/null 2>&1
  check "a pod goes" delete_pod one
  check "ready again" wait_for 10 ready ready
  check "the pod that was refused starts, once the address has cooled down" wait_for 30 "an address" start_pod late '{}'
  check "IPv4: and is reached" answers late sw get "http://$(pod_ip late 4):8080/"
  check "they go" delete_pod two late
  check "nothing is left" same "$(leftovers)" ""
}
start_pods() { local n; for n; do start_pod "$n" '{}' || return; done; }

# Pools that a pod's annotation names, or its namespace's: as containerd hands both on.
test_pools() {
  conflist "$(jq -nc --arg r4 "$POD4" --arg n4 "$NEW4" '{ipam: {type: "culvert-ipam", routes: [{dst: "0.0.0.0/0"}], ranges: [[{subnet: "\($r4).0/24"}]],
    pools: {blue: {ranges: [[{subnet: "\($n4).0/25"}]]}, red: {ranges: [[{subnet: "\($n4).128/25"}]]}}, namespacePools: {default: ["red"]}}}')"
  check "ready with pools" wait_for 10 ready ready
  check "a pod with an annotation starts" start_pod blue '{annotations: {"culvert.dev/ippools": "[\"blue\"]"}}'
  check "its address is of the pool" same "$(pod_ip blue 4)" "$NEW4.2"
  check "a pod without starts" start_pod red '{}'
  check "its address is of its namespace's pool" same "$(pod_ip red 4)" "$NEW4.130"
  check "a pod of a pool without ranges is refused" fails 'there is no range of addresses on this node for pool' start_pod green '{annotations: {"culvert.dev/ippools": "green"}}'
  delete_pod green >/dev/null 2>&1
  check "they go" delete_pod blue red
  check "nothing is left" same "$(leftovers)" ""
}

# template: what containerd makes a list of; PodCIDRRanges are what kubelet says
template() {
  cat >"$TEMPLATE" <<T
{"cniVersion": "$version", "name": "culvert-lab", "plugins": [{
  "type": "culvert", "pinPath": "$PIN", "logFile": "$LOG", "logLevel": "debug", "ipMasq": true,
  "capabilities": {"portMappings": true, "bandwidth": true},
  "ipam": {"type": "culvert-ipam",
    "ranges": [{{range \$i, \$r := .PodCIDRRanges}}{{if \$i}}, {{end}}[{"subnet": "{{\$r}}"}]{{end}}],
    "routes": [{{range \$i, \$r := .Routes}}{{if \$i}}, {{end}}{"dst": "{{\$r}}"}{{end}}]}}]}
T
}

# told CIDRS: containerd is told the node's ranges, as kubelet does; where it has a list it writes none
told() { crictl update-runtime-config --pod-cidr "$1"; }
rendered() { jq -c '[.plugins[0].ipam.ranges[][].subnet]' "$NETD/10-containerd-net.conflist"; }
nonmasq() { ctl status | jq -c '[.nonmasq[]?.range]'; }
# renew CIDRS: another list
renew() {
  rm -f "$NETD"/*.conflist
  wait_for 10 "no list" not_ready && told "$1" && wait_for 10 ready ready
}

# The range of a node comes from containerd's conf_template, and changes while a pod runs.
test_template() {
  local old="$POD4.0/24,$POD6:/64" new="$NEW4.0/24,$NEW6:/64" a4 b4 a6 b6
  template
  check "containerd renders its template once it is told the node's ranges" renew "$old"
  check "the ranges are those" same "$(rendered)" "[\"$POD4.0/24\",\"$POD6:/64\"]"
  check "a pod starts" start_pod old '{}'
  a4=$(pod_ip old 4) a6=$(pod_ip old 6)
  check "its addresses are of them" test "${a4%.*} ${a6%::*}" = "$POD4 ${POD6%:}"
  told "$new"
  check "while the network is ready the list stays as it is" same "$(rendered)" "[\"$POD4.0/24\",\"$POD6:/64\"]"

  ip -n "$SW" route replace "$NEW4.0/24" via "$NODE4"
  ip -n "$SW" -6 route replace "$NEW6:/64" via "$NODE6"
  check "without the list it is rendered for the new ranges" renew "$new"
  check "another pod starts" start_pod new '{}'
  b4=$(pod_ip new 4) b6=$(pod_ip new 6)
  check "its addresses are of the new ranges" test "${b4%.*} ${b6%::*}" = "$NEW4 ${NEW6%:}"
  check "IPv4: the old pod is reached" answers old sw get "http://$a4:8080/"
  check "IPv6: the old pod is reached" answers old sw get "http://[$a6]:8080/"
  check "IPv4: the new pod is reached" answers new sw get "http://$b4:8080/"
  check "IPv4: the old pod sees the new one's address" answers "old $b4" new get "http://$a4:8080/"
  check "IPv6: the new pod sees the old one's address" answers "new $a6" old get "http://[$b6]:8080/"
  check "neither range is masqueraded" same "$(nonmasq)" "[\"$POD4.0/24\",\"$NEW4.0/24\",\"$POD6:/64\",\"$NEW6:/64\"]"
  check "the old pod goes" delete_pod old
  check "and its range with it" same "$(nonmasq)" "[\"$NEW4.0/24\",\"$NEW6:/64\"]"
  check "the new pod goes" delete_pod new
  check "nothing is left" same "$(leftovers)" ""
}
