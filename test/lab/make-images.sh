#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Make the lab's images without a registry: W/images/NAME.tar, docker archives for "ctr images import".
#
#   make-images.sh              pod: one static binary (labpod), which serves as the sandbox image too
#   make-images.sh kubernetes   and what a cluster and its end-to-end tests run, of build-kubernetes.sh's
#                               programs and this machine's, under the names that v1.37.2 asks for
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
mkdir -p "$W/bin" "$W/images"

rootfs() { # rootfs NAME: begin one; with users, since programs look them up
  R=$T/$1
  mkdir -p "$R"/{bin,etc,proc,sys,dev,tmp,run}
  chmod 1777 "$R/tmp"
  printf 'root:x:0:0:root:/root:/bin/false\n' >"$R/etc/passwd"
}
# pack NAME CONFIG TAG...: the root file system in R becomes an image of one layer
pack() {
  local name=$1 config=$2 d=$T/$1.image diff; shift 2
  mkdir "$d"
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$R" -cf "$d/layer.tar" .
  diff=$(sha256sum "$d/layer.tar" | cut -d' ' -f1)
  jq -cn --arg d "sha256:$diff" --arg a "$(go env GOARCH)" --argjson c "$config" '{architecture: $a, os: "linux", created: "1970-01-01T00:00:00Z",
    config: $c, rootfs: {type: "layers", diff_ids: [$d]},
    history: [{created: "1970-01-01T00:00:00Z", created_by: "make-images.sh"}]}' >"$d/config.json"
  jq -cn --args '[{Config: "config.json", RepoTags: $ARGS.positional, Layers: ["layer.tar"]}]' "$@" >"$d/manifest.json"
  tar -C "$d" -cf "$W/images/$name.tar.new" manifest.json config.json layer.tar
  mv "$W/images/$name.tar.new" "$W/images/$name.tar"
}

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

# programs NAME...: of this machine, with the libraries they are linked to
programs() {
  local p f l
  for p; do
    f=$(readlink -f "$(command -v "$p")")
    install -m755 "$f" "$R/bin/$p"
    for l in $(ldd "$f" 2>/dev/null | grep -o '/[^ ]*'); do
      mkdir -p "$R$(dirname "$l")"
      cp -Ln "$l" "$R$l"
    done
  done
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

pod
case ${1:-} in
  '') ;;
  kubernetes) kubernetes ;;
  *) sed -n '4,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
