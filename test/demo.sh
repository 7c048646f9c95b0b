#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh: one throwaway node, from nothing to pods with a hostPort and a limit, and away again.
#
# The node (demo/stage.sh) lives in mount, PID and network namespaces that exist for it alone. Its bpffs,
# its files and its network namespaces are held by its own processes and by nothing else, so all of it
# ends with the first of them, whatever ends that: the last step, an error, Ctrl-C, or SIGKILL here.
#
# CULVERT_DEMO_PREPARED=1: install and build nothing (a machine without a network).
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$repo"
export PATH="$PATH:/usr/local/go/bin:/usr/sbin:/sbin"

prepare() {
  [ "$(id -u)" = 0 ] || { echo "demo: needs root, for network namespaces and bpf()" >&2; exit 1; }
  if [ "${CULVERT_DEMO_PREPARED:-}" = 1 ]; then
    ls bin/culvert bin/culvertctl bin/ref/{cnitool,host-local,who} >/dev/null
    return
  fi
  echo "== Building (fetches the Debian packages and Go modules that are missing)"
  make --no-print-directory -s deps build ref
}

# leave ends the stage by its first process: the kernel ends the others and drops what they held.
leave() {
  local stage=${!:-}
  [ -n "$stage" ] || return 0
  pkill -KILL -P "$stage" 2>/dev/null || kill -KILL "$stage" 2>/dev/null || true
  wait "$stage" 2>/dev/null || true
}

prepare
trap leave EXIT
trap 'echo; echo "demo: interrupted; the node goes away" >&2; exit 130' INT TERM HUP
# Nobody is left to end the stage if this shell is killed: the kernel does, on pdeathsig. In a session of its
# own the stage does not see Ctrl-C: it is ended from here alone.
# unshare of util-linux 2.38 has a complaint of its own when its child is killed, which helps nobody.
setpriv --pdeathsig KILL -- setsid unshare --mount --pid --kill-child --mount-proc -- \
  bash -c 'exec bash test/demo/stage.sh 2>&3 3>&-' </dev/null 3>&2 2> >(grep -v 'sigprocmask unblock failed' >&2) &
wait $! || { status=$?; echo "demo: failed" >&2; exit "$status"; }
printf '\n== Done in %s s. The node is gone: its namespaces, its bpffs and its files.\n' "$SECONDS"
