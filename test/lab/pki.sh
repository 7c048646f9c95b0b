# SPDX-License-Identifier: Apache-2.0
#
# A cluster's certificates and kubeconfigs, in the current directory (sourced by cluster-up.sh).
# shellcheck shell=bash

pki_certificate() { # pki_certificate NAME SUBJECT [SAN]: a client's, with SAN a server's
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  if [ -n "${3:-}" ]; then printf 'extendedKeyUsage=serverAuth\nsubjectAltName=%s\n' "$3"; else echo extendedKeyUsage=clientAuth; fi |
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile /dev/stdin 2>/dev/null
}

pki_up() { # pki_up API_IP SERVICE_IP
  local svc=kubernetes.default.svc u
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout ca.key -out ca.crt -subj /CN=lab-ca 2>/dev/null
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  pki_certificate apiserver /CN=kube-apiserver \
    "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:$svc,DNS:$svc.cluster.local,IP:127.0.0.1,IP:$1,IP:$2"
  pki_certificate apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
  pki_certificate front-proxy /CN=front-proxy
  pki_certificate admin /O=system:masters/CN=admin
  for u in kube-controller-manager kube-scheduler kube-proxy; do pki_certificate "$u" "/CN=system:$u"; done
}

pki_kubeconfig() { # pki_kubeconfig NAME SERVER: printed, with the certificate in it
  cat <<K
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: $1}}]
clusters: [{name: lab, cluster: {server: "$2", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
K
}
