# SPDX-License-Identifier: Apache-2.0
#
# What must work before Kubernetes' own tests are worth their time: every way to a pod, from the same and
# each other node, in both families (sourced by run.sh). On each node are who-NODE, which has hostPorts, and
# client-NODE; a service stands before each who. A who answers with its name and its client's address. limited,
# on the first node, has bandwidth annotations.
# shellcheck shell=bash disable=SC2154

pod_manifest() { # pod_manifest NAME NODE PORTS [INGRESS EGRESS]: PORTS is a YAML list; limits, 1G without
  cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}, annotations: {kubernetes.io/ingress-bandwidth: ${4:-1G}, kubernetes.io/egress-bandwidth: ${5:-1G}}}
spec:
  nodeName: $2
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: $IMAGE
    command: [/bin/labpod, serve]
    env: [{name: POD, value: $1}]
    ports: $3
    readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
Y
}
service_manifest() { # service_manifest NAME
  cat <<Y
---
apiVersion: v1
kind: Service
metadata: {name: $1}
spec:
  selector: {app: $1}
  ipFamilyPolicy: RequireDualStack
  ports: [{name: http, port: 80, targetPort: 8080}, {name: udp, port: 81, targetPort: 8081, protocol: UDP}]
Y
}
smoke_manifests() {
  local n
  for n in "${NODES[@]}"; do
    pod_manifest "who-$n" "$n" '[{containerPort: 8080, hostPort: 18080}, {containerPort: 8081, hostPort: 18081, protocol: UDP}]'
    pod_manifest "client-$n" "$n" '[]'
    service_manifest "who-$n"
  done
  pod_manifest limited "${NODES[0]}" '[]' 20M 10M
}

# addresses JSONPATH OBJECT: the IPv4 and the IPv6 one, as two words, the latter in brackets
addresses() { kubectl get "$2" -o "jsonpath=$1" | tr ' ' '\n' | sort -t: -k2 | sed 's/.*:.*/[&]/' | tr '\n' ' '; }
bare() { local a=${1#[}; echo "${a%]}"; }
# in_pod POD ARG...: labpod in the pod's network; only names need the rest of the pod (kubectl exec), at a hundred
# times the processor's time
in_pod() { local p=$1; shift; node_exec "${pod_node[$p]}" nsenter --net="${pod_netns[$p]}" "$W/bin/labpod" "$@"; }
declare -A pod_node pod_netns
find_pods() {
  local n id name ns
  for n in "${NODES[@]}"; do
    while read -r id name; do
      ns=$("$LAB/node-exec.sh" "$n" crictl inspectp "$id" | jq -r '.info.runtimeSpec.linux.namespaces[] | select(.type == "network").path')
      pod_node[$name]=$n pod_netns[$name]=$ns
    done < <("$LAB/node-exec.sh" "$n" crictl pods -s Ready --namespace default -o json | jq -r '.items[] | "\(.id) \(.metadata.name)"')
  done
}
in_node() { local n=$1; shift; node_exec "$n" "$W/bin/labpod" "$@"; }
outside() { sw_exec "$W/bin/labpod" "$@"; }
says() { local want=$1; shift; has "$("$@")" "$want"; }

# from_pod CLIENT WHO FAMILY CLIENT_IP WHO_IP NODE_IP SERVICE_IP
from_pod() {
  local c=$1 w=$2 f=$3 me; me=$(bare "$4")
  check "$f: $c -> $w: pod address, source kept" says "$w $me" in_pod "$c" get "http://$5:8080/"
  check "$f: $c -> $w: hostPort TCP" says "$w " in_pod "$c" get "http://$6:18080/"
  check "$f: $c -> $w: hostPort UDP" says "$w " in_pod "$c" udp "$6:18081"
  check "$f: $c -> $w: ClusterIP TCP" says "$w " in_pod "$c" get "http://$7/"
  check "$f: $c -> $w: ClusterIP UDP" says "$w " in_pod "$c" udp "$7:81"
}
# from_node NODE WHO FAMILY WHO_IP NODE_IP SERVICE_IP
from_node() {
  check "$3: node $1 -> $2: pod address" says "$2 " in_node "$1" get "http://$4:8080/"
  check "$3: node $1 -> $2: hostPort TCP" says "$2 " in_node "$1" get "http://$5:18080/"
  check "$3: node $1 -> $2: hostPort UDP" says "$2 " in_node "$1" udp "$5:18081"
  check "$3: node $1 -> $2: ClusterIP" says "$2 " in_node "$1" get "http://$6/"
}

# a service's addresses answer once kube-proxy has them, which is after its pod is ready
service_known() { # service_known NODE WHO SERVICE_IP
  in_node "$1" get "http://$3/" | grep -q "^$2 "
}
services_known() {
  local n s a svc
  for s in "${NODES[@]}"; do
    read -ra svc <<<"$(addresses '{.spec.clusterIPs[*]}' "service/who-$s")"
    for n in "${NODES[@]}"; do for a in "${svc[@]}"; do
      wait_for 60 "$a, of who-$s, on $n" service_known "$n" "who-$s" "$a" || return
    done; done
  done
}

# holds BITS CMD...: what CMD measures is this rate less headers; never more, and one of five times nearly all
# of it, as the machine may be busy
holds() {
  local got
  for _ in 1 2 3 4 5; do
    got=$("${@:2}") || return
    if [ "$got" -gt "$1" ]; then break; fi
    if [ "$got" -ge $(($1 * 80 / 100)) ]; then return; fi
  done
  echo "got $got bit/s of $1"; return 1
}
smoke_bandwidth() {
  local n i a
  read -ra a <<<"$(addresses '{.status.podIPs[*].ip}' pod/limited)"
  for n in "${NODES[@]}"; do for i in 0 1; do
    check "IPv$((i * 2 + 4)): client-$n -> limited: 20 Mbit/s in" holds 20000000 in_pod "client-$n" push "${a[i]}:8083" 3
    check "IPv$((i * 2 + 4)): client-$n -> limited: 10 Mbit/s out" holds 10000000 in_pod "client-$n" pull "http://${a[i]}:8080/source" 3
  done; done
}

# from_outside WHO NODE FAMILY HOST_IP OUTSIDE_IP LOCAL_IP: hostPort from the node network, and from the node itself
from_outside() {
  check "$3: outside -> $1: hostPort TCP, source kept" says "$1 $5" outside get "http://$4:18080/"
  check "$3: outside -> $1: hostPort UDP, source kept" says "$1 $5" outside udp "$4:18081"
  check "$3: node $2 -> $1: hostPort at localhost" says "$1 " in_node "$2" get "http://$6:18080/"
  # as the HostPort conformance test does; labpod cannot bind
  check "$3: node $2 -> $1: hostPort at localhost, from the node's address" \
    says "$1 " node_exec "$2" curl -sgm 3 --interface "$(bare "$4")" "http://$6:18080/"
}

# smoke_who INDEX: every way to who-NODE
smoke_who() {
  local n s=${NODES[$1]} i f me who host svc out local=(127.0.0.1 '[::1]')
  out=("$(net4 $(($1 + 1))).1" "$(net6 $(($1 + 1)))1")
  read -ra who <<<"$(addresses '{.status.podIPs[*].ip}' "pod/who-$s")"
  read -ra host <<<"$(addresses '{.status.hostIPs[*].ip}' "pod/who-$s")"
  read -ra svc <<<"$(addresses '{.spec.clusterIPs[*]}' "service/who-$s")"
  for i in 0 1; do
    f=IPv$((i * 2 + 4))
    for n in "${NODES[@]}"; do
      read -ra me <<<"$(addresses '{.status.podIPs[*].ip}' "pod/client-$n")"
      from_pod "client-$n" "who-$s" "$f" "${me[i]}" "${who[i]}" "${host[i]}" "${svc[i]}"
      from_node "$n" "who-$s" "$f" "${who[i]}" "${host[i]}" "${svc[i]}"
    done
    # who calls itself, each way
    from_pod "who-$s" "who-$s" "$f" "${who[i]}" "${who[i]}" "${host[i]}" "${svc[i]}"
    from_outside "who-$s" "$s" "$f" "${host[i]}" "${out[i]}" "${local[i]}"
  done
  for n in "${NODES[@]}"; do check "client-$n -> who-$s: by its name in DNS" says "who-$s " kubectl exec "client-$n" -- /bin/labpod get "http://who-$s.default.svc.cluster.local/"; done
}

# smoke ends with an error only if there is nothing to test
smoke() {
  local before=$failed i
  smoke_manifests | kubectl apply -f - >/dev/null
  check "the smoke pods are ready" kubectl wait --for=condition=Ready pod --all --timeout=90s
  check "the smoke services are known on every node" services_known
  [ "$failed" = "$before" ] || { kubectl get pods -A -o wide; kubectl get events | tail; return 1; }
  find_pods
  for i in "${!NODES[@]}"; do smoke_who "$i"; done
  smoke_bandwidth
  smoke_manifests | kubectl delete --wait -f - >/dev/null || true
}
