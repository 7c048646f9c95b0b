# SPDX-License-Identifier: Apache-2.0
#
# What the scripts of kind have in common (sourced, after test/lab/lib.sh).
#
# Where docker answers, kind uses it and pulls its node image. Elsewhere dockerd, Debian's and not installed, runs
# in a node of the lab, and the images are home-made (image.sh).
# shellcheck shell=bash disable=SC2034,SC2154
K=$W/kind
KIND_CLUSTER=culvertlab KIND_NODE=localhost/culvert-lab/kindnode:1
DOCKER_NODE=dk DOCKER_INDEX=60
DOCKER_NET=172.18.0 REGISTRY=172.18.0.1:5000
: "${KIND_VERSION:=v0.33.0}"
AGENT_LABEL=app.kubernetes.io/name=culvertd # as deploy/ has it
mkdir -p "$K"

have_docker() { timeout 10 docker info >/dev/null 2>&1; }
# where CMD...: run it where docker is
where() {
  if [ -n "${OWN_DOCKER:-}" ]; then
    node_exec "$DOCKER_NODE" env HOME="$K" DOCKER_HOST=unix:///run/docker.sock KUBECONFIG="$K/kubeconfig" \
      PATH="$K/docker/usr/sbin:$K/docker/usr/bin:$W/bin:$PATH" "$@"
  else
    KUBECONFIG="$K/kubeconfig" PATH="$W/bin:$PATH" "$@"
  fi
}
have_docker || OWN_DOCKER=1
