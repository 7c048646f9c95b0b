#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Make the lab's images without a registry: W/images/NAME.tar, docker archives for "ctr images import".
#
#   make-images.sh              pod: one static binary (labpod), which serves as the sandbox image too
#   make-images.sh kubernetes   and what a cluster and its end-to-end tests run, of build-kubernetes.sh's
#                               programs and this machine's, under the names that v1.37.2 asks for
#   make-images.sh culvert      what deploy/Dockerfile makes, of bin/
#   make-images.sh kind         what kubeadm asks for, into W/kind/images
#   make-images.sh critest      what critest pulls, into W/critest
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
mkdir -p "$W/bin" "$W/images"

. "$LAB/pack.sh"

# asked NAME: the full names by which Kubernetes' tests, where they are built, ask for an image
asked() {
  [ ! -x "$W/bin/e2e.test" ] || "$W/bin/e2e.test" --list-images 2>/dev/null | grep "/$1:" | grep -v authenticated
}

pod() {
  rootfs pod
  CGO_ENABLED=0 go build -C "$LAB/../.." -buildvcs=false -trimpath -ldflags "-s -w -buildid=" -o "$R/bin/labpod" ./test/lab/labpod
  cp "$R/bin/labpod" "$W/bin/labpod.new"
  mv "$W/bin/labpod.new" "$W/bin/labpod"
  # shellcheck disable=SC2046 # names, one a word
  pack pod '{"Entrypoint": ["/bin/labpod"], "Cmd": ["pause"]}' "$IMAGE" $(asked pause)
}

kubernetes() {
  local path='"Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]'
  # The tests' shells call these. Debian's static busybox prefers its own applets over /bin, and those
  # crash when they resolve names: sh is dash, and what has a program of its own is that program.
  rootfs tools
  printf 'hosts: files dns\n' >"$R/etc/nsswitch.conf"
  install -m755 "$(command -v busybox)" "$R/bin/busybox"
  busybox --list | while read -r p; do [ "$p" = busybox ] || ln -s busybox "$R/bin/$p"; done
  rm -f "$R"/bin/{bash,ip,nc,ping,sh,wget}
  programs bash curl dash dig getent ip iperf nc ping socat wget
  ln -s dash "$R/bin/sh"
  # shellcheck disable=SC2046
  pack tools "{\"Cmd\": [\"sh\"], $path}" $(asked glibc-dns-testing) $(asked busybox)

  install -m755 "$W/bin/agnhost" "$R/agnhost"
  ln -s ../agnhost "$R/bin/agnhost"
  ln -s agnhost "$R/agnhost-2"
  mkdir "$R/uploads"
  install -m755 "$W/bin/coredns" "$R/coredns"
  # for "agnhost porter"
  openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$R/localhost.key" -out "$R/localhost.crt" 2>/dev/null
  # shellcheck disable=SC2046
  pack agnhost "{\"Entrypoint\": [\"/agnhost\"], \"Cmd\": [\"pause\"], $path}" "$AGNHOST" $(asked agnhost)

  rootfs regression
  install -m755 "$W/bin/regression-issue-74839" "$R/main"
  # shellcheck disable=SC2046
  pack regression '{"Entrypoint": ["/main"]}' $(asked regression-issue-74839)
}

culvert() {
  R=$T/culvert
  mkdir -p "$R/bin"
  install -m755 "$LAB"/../../bin/{culvert,culvert-ipam,culvertctl,culvertd} "$R/bin/"
  pack culvert '{"Entrypoint": ["/bin/culvertd"]}' "$CULVERT"
}

# by kubeadm's names, less the registry, at which labreg does not look
kind() {
  local name p config path='"Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]'
  PACK_TO=$W/kind/images
  mkdir -p "$PACK_TO"
  "$W/bin/kubeadm" config images list --kubernetes-version "$(cat "$W/bin/kubelet.version")" 2>/dev/null | while read -r name; do
    p=${name##*/} p=${p%:*} config="{\"Entrypoint\": [\"/bin/$p\"], $path}"
    rootfs "kind-$p"
    case $p in
      pause) install -m755 "$W/bin/labpod" "$R/bin/pause"; config='{"Entrypoint": ["/bin/pause", "pause"]}' ;;
      coredns) install -m755 "$W/bin/coredns" "$R/coredns"; config='{"Entrypoint": ["/coredns"]}' ;;
      kube-proxy) # called by its path
        programs conntrack nft
        mkdir -p "$R/usr/local/bin" "$R/usr/sbin"
        ln -s ../../bin/nft "$R/usr/sbin/nft"
        install -m755 "$W/bin/$p" "$R/usr/local/bin/"
        config="{\"Cmd\": [\"kube-proxy\"], $path}" ;;
      *) install -m755 "$W/bin/$p" "$R/bin/" ;;
    esac
    pack "$p" "$config" "localhost/${name#*/}"
  done
  # the sandbox's image as kind's containerd names it
  R=$T/kind-pause
  pack sandbox '{"Entrypoint": ["/bin/pause", "pause"]}' localhost/pause:3.10
}

# web NAME PORT TAG: busybox serves a page
web() {
  rootfs "$1"
  install -m755 "$(command -v busybox)" "$R/bin/busybox"
  busybox --list | while read -r p; do [ "$p" = busybox ] || ln -s busybox "$R/bin/$p"; done
  mkdir "$R/www"
  echo page >"$R/www/index.html"
  pack "$1" "{\"Cmd\": [\"/bin/httpd\", \"-f\", \"-v\", \"-p\", \"$2\", \"-h\", \"/www\"], \"Env\": [\"PATH=/bin\"]}" "$3"
}
critest() {
  PACK_TO=$W/critest
  mkdir -p "$PACK_TO"
  web busybox 80 localhost/e2e-test-images/busybox:1.29-2
  web nginx 80 localhost/e2e-test-images/nginx:1.14-2
  web httpd 80 localhost/e2e-test-images/httpd:2.4.39-4
  web hostnet 12003 "localhost/k8s-staging-cri-tools/hostnet-nginx-$(go env GOARCH):latest"
}

case ${1:-} in
  '') pod ;;
  kubernetes) pod; kubernetes ;;
  culvert) culvert ;;
  kind) kind ;;
  critest) critest ;;
  *) sed -n '4,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
