# SPDX-License-Identifier: Apache-2.0
#
# Making images without a registry or a daemon: docker archives (sourced, after lib.sh). T is a scratch directory,
# PACK_TO where the archives go.
# shellcheck shell=bash disable=SC2154
: "${PACK_TO:=$W/images}"

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
    history: [{created: "1970-01-01T00:00:00Z", created_by: "culvert-lab"}]}' >"$d/config.json"
  jq -cn --args '[{Config: "config.json", RepoTags: $ARGS.positional, Layers: ["layer.tar"]}]' "$@" >"$d/manifest.json"
  tar -C "$d" -cf "$PACK_TO/$name.tar.new" manifest.json config.json layer.tar
  mv "$PACK_TO/$name.tar.new" "$PACK_TO/$name.tar"
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
