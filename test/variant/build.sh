#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh DIR: builds culvert and culvertctl as other releases would be, for the upgrade tests:
#   DIR/build   another build of the same layout (the object has a byte more behind its end)
#   DIR/layout  another layout (schema 2): fields of flows, tuples, limits, pods and counters lie elsewhere,
#               are wider or new. Needs clang-19; without it there is no such directory.
# Nothing in the tree changes: the compiler is given the files in its place (go build -overlay).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
out=$(realpath -m "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # DIRECTORY, and pairs FILE REPLACEMENT
  local dir=$1 list=""
  shift
  while [ $# -gt 0 ]; do
    list+="${list:+,}\"$root/$1\":\"$2\""
    shift 2
  done
  printf '{"Replace":{%s}}' "$list" >"$work/overlay.json"
  CGO_ENABLED=0 go build -trimpath -overlay "$work/overlay.json" -ldflags '-s -w -X main.version=variant' -o "$dir/" ./cmd/culvert ./cmd/culvertctl
}

{ cat bpf/datapath_bpfel.o; echo; } >"$work/build.o"
build "$out/build" bpf/datapath_bpfel.o "$work/build.o"

if ! command -v clang-19 >/dev/null || ! command -v llvm-strip-19 >/dev/null; then
  echo "build.sh: no clang-19: no binaries of another layout" >&2
  rm -rf "$out/layout"
  exit 0
fi
cp -r bpf "$work/bpf"
chmod -R u+w "$work/bpf"
# Each pattern has to be found: a layout that is the same would test nothing.
edit() { # PATTERN REPLACEMENT
  perl -0pi -e 'BEGIN { ($p, $r) = splice @ARGV, 0, 2 } $r =~ s/"/\\"/g; s{$p}{qq("$r")}ee or die "build.sh: types.h has no $p\n"' "$1" "$2" "$work/bpf/lib/types.h"
}
edit '__u64 rate_bits;' '__u64 added; __u64 rate_bits;'
edit 'struct flow \{\n' 'struct flow { __u64 added;\n'
edit 'enum flow_action action;\n\tenum flow_flag flags;\n(.*)\n(.*)\n(.*)' 'enum flow_flag flags;\n\tenum flow_action action;\n$3\n$2\n$1' # generations and seen_ns turned round
edit '__u32 ifindex;\t  /\* host side of the veth \*/' '__u32 added; __u32 added2; __u32 ifindex;'
edit '__u64 packets;\n' '__u64 added; __u64 packets;'
edit '__u32 schema;' '__u32 schema; __u64 added;'
grep -oP '^//go:generate go tool \K.*' bpf/gen.go >"$work/command"
# bpf2go writes beside its package, and wants the module around it.
cp go.mod go.sum "$work/"
(cd "$work/bpf" && GOPACKAGE=bpf sh -c "go tool $(cat "$work/command")") >&2
sed 's/^const Schema = .*/const Schema = 2/' loader/loader.go >"$work/loader.go"
build "$out/layout" bpf/datapath_bpfel.o "$work/bpf/datapath_bpfel.o" bpf/datapath_bpfel.go "$work/bpf/datapath_bpfel.go" loader/loader.go "$work/loader.go"
