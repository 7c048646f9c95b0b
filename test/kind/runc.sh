#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# runc for a root that lacks CAP_SYS_RESOURCE: what the kernel would refuse is taken out of a container's
# specification first: that capability, a negative OOM score, a limit of open files above our own. And for an old
# docker, Debian's 20.10, whose privileged containers lack what Linux has had since 5.8 (CAP_BPF). For dockerd's
# --add-runtime.
bundle='' process='' before=''
for a; do
  case $before in
    --bundle | -b) bundle=$a ;;
    --process | -p) process=$a ;;
  esac
  before=$a
done
edit() { # edit FILE FILTER
  [ -f "$1" ] || return 0
  jq --argjson files "$(ulimit -Hn)" 'def able: if .capabilities then .capabilities |= map_values(map(select(. != "CAP_SYS_RESOURCE"))
      | if index("CAP_SYS_ADMIN") then (. + ["CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE"] | unique) else . end) else . end;
    def mend: able | if (.oomScoreAdj // 0) < 0 then .oomScoreAdj = 0 else . end
      | if .rlimits then .rlimits |= map(select(.type != "RLIMIT_NOFILE" or .hard <= $files)) else . end; '"$2" "$1" >"$1.mended" &&
    cat "$1.mended" >"$1" # in place: the other holds the file open
  rm -f "$1.mended"
}
case " $* " in
  *" create "* | *" run "*) edit "$bundle/config.json" '.process |= mend' ;;
  *" exec "*) edit "$process" mend ;;
esac
exec runc "$@"
