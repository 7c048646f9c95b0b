# SPDX-License-Identifier: Apache-2.0
#
# What must work before Kubernetes' own tests are worth their time: every way to a pod, from the same and
# the other node, in both families (sourced by run.sh). On each node are who-NODE, which has hostPorts, and
# client-NODE; a service stands before each who. A who answers with its name and its client's address.
# shellcheck shell=bash disable=SC2154

pod_manifest() { # pod_manifest NAME NODE PORTS: PORTS is a YAML list
  cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}, annotations: {kubernetes.io/ingress-bandwidth: 100M, kubernetes.io/egress-bandwidth: 100M}}
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
}

# addresses JSONPATH OBJECT: the IPv4 and the IPv6 one, as two words, the latter in brackets
addresses() { kubectl get "$2" -o "jsonpath=$1" | tr ' ' '\n' | sort -t: -k2 | sed 's/.*:.*/[&]/' | tr '\n' ' '; }
bare() { local a=${1#[}; echo "${a%]}"; }
in_pod() { local p=$1; shift; kubectl exec "$p" -- /bin/labpod "$@"; }
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

# smoke ends with an error only if there is nothing to test
smoke() {
  local before=$failed
  smoke_manifests | kubectl apply -f - >/dev/null
  check "the smoke pods are ready" kubectl wait --for=condition=Ready pod -l 'app in (who-n1, who-n2, client-n1, client-n2)' --timeout=90s
  [ "$failed" = "$before" ] || { kubectl get pods -o wide; kubectl get events | tail; return 1; }
  local n s i f me who host svc sw=("$LAB_NET4.1" "${LAB_NET6}1") local4=127.0.0.1
  for s in "${NODES[@]}"; do
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
      check "$f: outside -> who-$s: hostPort TCP, source kept" says "who-$s ${sw[i]}" outside get "http://${host[i]}:18080/"
      check "$f: outside -> who-$s: hostPort UDP, source kept" says "who-$s ${sw[i]}" outside udp "${host[i]}:18081"
      check "$f: node $s -> who-$s: hostPort at localhost" says "who-$s " in_node "$s" get "http://$local4:18080/"
      # as the HostPort conformance test does; labpod cannot bind
      check "$f: node $s -> who-$s: hostPort at localhost, from the node's address" \
        says "who-$s $(bare "${host[i]}")" node_exec "$s" curl -sgm 3 --interface "$(bare "${host[i]}")" "http://$local4:18080/"
      local4='[::1]'
    done
    local4=127.0.0.1
    for n in "${NODES[@]}"; do check "client-$n -> who-$s: by its name in DNS" says "who-$s " in_pod "client-$n" get "http://who-$s.default.svc.cluster.local/"; done
  done
  smoke_manifests | kubectl delete --wait -f - >/dev/null || true
}
