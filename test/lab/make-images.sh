#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Make the lab's one image without a registry: W/images/pod.tar, a docker archive for "ctr images
# import". It holds one static binary (labpod) and serves as the sandbox image too.
#
#   make-images.sh          W (default /tmp/culvert-lab)
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
mkdir -p "$W/bin" "$W/images" "$T"/root/{bin,etc,proc,sys,dev,tmp,run}

CGO_ENABLED=0 go build -C "$LAB/../.." -buildvcs=false -trimpath -ldflags "-s -w -buildid=" -o "$T/labpod" ./test/lab/labpod
cp "$T/labpod" "$W/bin/labpod.new"
mv "$W/bin/labpod.new" "$W/bin/labpod"
mv "$T/labpod" "$T/root/bin/labpod"
printf 'root:x:0:0:root:/root:/bin/false\n' >"$T/root/etc/passwd"

tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$T/root" -cf "$T/layer.tar" .
diff=$(sha256sum "$T/layer.tar" | cut -d' ' -f1)
jq -cn --arg d "sha256:$diff" --arg a "$(go env GOARCH)" '{architecture: $a, os: "linux", created: "1970-01-01T00:00:00Z",
  config: {Entrypoint: ["/bin/labpod"], Cmd: ["pause"]}, rootfs: {type: "layers", diff_ids: [$d]},
  history: [{created: "1970-01-01T00:00:00Z", created_by: "make-images.sh"}]}' >"$T/config.json"
jq -cn --arg n "$IMAGE" '[{Config: "config.json", RepoTags: [$n], Layers: ["layer.tar"]}]' >"$T/manifest.json"
tar -C "$T" -cf "$W/images/pod.tar.new" manifest.json config.json layer.tar
mv "$W/images/pod.tar.new" "$W/images/pod.tar"
