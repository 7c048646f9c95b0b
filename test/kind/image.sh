#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A node image for kind where there is no registry to pull one from: Debian 12 by debootstrap (kept in
# W/kind/debian), the files that kind's own Go module has for its base image, and the lab's binaries. Debian 12
# because its systemd runs on cgroup 1 too.
#
#   image.sh      after build-kubernetes.sh kind; W/kind/node.tar is KIND_NODE. Two minutes the first time.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")") root=$(readlink -f "$here/../..")
. "$root/test/lab/lib.sh"
. "$here/lib.sh"
T=$(mktemp -d "$K/image.XXXXXX"); trap 'rm -rf "$T"' EXIT
R=$T/root

debian() { # built aside and renamed, so that a broken one is never taken
  [ ! -d "$K/debian" ] || return 0
  command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get -qq install -y debootstrap >/dev/null
  local mirror
  # shellcheck disable=SC2016 # apt's variables
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' | awk '$2 == "bookworm" { print $1; exit }')
  rm -rf "$K/debian.new"
  debootstrap --variant=minbase --include="systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,procps,jq,curl,ca-certificates,libseccomp2,runc,ebtables,socat" \
    bookworm "$K/debian.new" ${mirror:+"$mirror"} >"$K/debootstrap.log" 2>&1 || { tail "$K/debootstrap.log" >&2; exit 1; }
  mv "$K/debian.new" "$K/debian"
}

kind_files() { # as the module's Dockerfile puts them
  local f
  f=$(go mod download -json "sigs.k8s.io/kind@$(cat "$W/bin/kind.version")" | jq -r .Dir)/images/base/files
  cp -r --no-preserve=mode,ownership "$f/kind" "$R/"
  cp -r --no-preserve=mode,ownership "$f/etc/." "$R/etc/"
  chmod 755 "$R/kind/bin" "$R"/kind/bin/*
  install -m755 "$f"/usr/local/bin/* "$R/usr/local/bin/"
}

units() { # a container starts these services and none of a machine's
  local s=$R/lib/systemd/system
  find "$s"/{multi-user,local-fs,basic}.target.wants "$R"/etc/systemd/system/*.wants -type l -delete 2>/dev/null || true
  find "$s/sockets.target.wants" \( -name '*udev*' -o -name '*initctl*' \) -delete
  find "$s/sysinit.target.wants" -name systemd-tmpfiles-setup.service -delete
  echo ReadKMsg=no >>"$R/etc/systemd/journald.conf"
  ln -sf /usr/lib/systemd/systemd "$R/sbin/init"
  chroot "$R" systemctl -q enable kubelet containerd undo-mount-hacks
  chroot "$R" systemctl -q mask systemd-binfmt
  # root may lack CAP_SYS_RESOURCE here: no negative OOM score, no limit raised
  mkdir -p "$R/etc/systemd/system/containerd.service.d"
  printf '[Service]\nOOMScoreAdjust=0\nLimitNPROC=\nLimitCORE=\nLimitNOFILE=%s\n' "$(ulimit -Hn)" \
    >"$R/etc/systemd/system/containerd.service.d/20-lab.conf"
}

programs() {
  mkdir -p "$R"/{etc/kubernetes/manifests,opt/cni/bin,kind/manifests,etc/containerd/certs.d/_default}
  install -m755 "$W"/bin/{containerd,ctr,containerd-shim-runc-v2,crictl} "$R/usr/local/bin/"
  install -m755 "$W"/bin/{kubelet,kubeadm,kubectl} "$R/usr/bin/"
  # what kind's own image has
  install -m755 "$root"/bin/ref/{host-local,loopback,ptp,portmap} "$R/opt/cni/bin/"
  cp "$W/bin/kubelet.version" "$R/kind/version"
  "$W/bin/ctr" oci spec | jq 'del(.process.rlimits) | .hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}]' \
    >"$R/etc/containerd/cri-base.json"
  sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$R/etc/containerd/config.toml"
  # every registry's name leads to labreg (up.sh)
  printf '[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "/etc/containerd/certs.d"\n' >>"$R/etc/containerd/config.toml"
  printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$REGISTRY" "$REGISTRY" \
    >"$R/etc/containerd/certs.d/_default/hosts.toml"
}

debian
cp -a "$K/debian" "$R"
rm -rf "$R"/var/cache/apt/archives/*.deb "$R"/var/lib/apt/lists/*
kind_files
units
programs
export PACK_TO=$K
. "$LAB/pack.sh"
pack node '{"Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"], "StopSignal": "SIGRTMIN+3",
  "Env": ["container=docker", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}' "$KIND_NODE"
