# SPDX-License-Identifier: Apache-2.0
#
# The words that checks are written in (sourced, after lib.sh). LOG: culvert's log, if there is one.
# shellcheck shell=bash

passed=0 failed=0
# check NAME CMD...: one line; on failure what CMD said, and what culvert last logged
check() {
  local name=$1 out; shift
  if out=$("$@" 2>&1); then
    passed=$((passed + 1)); echo "ok $((passed + failed)) - $name"; return
  fi
  failed=$((failed + 1)); echo "not ok $((passed + failed)) - $name"
  printf '%s\n' "$out" | sed 's/^/#   /'
  grep -v '"level":"DEBUG"' "${LOG:-/dev/null}" 2>/dev/null | tail -n 3 | sed 's/^/#   culvert: /'
}
summary() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ] || { echo "# logs: ${KEPT:-$W/last}" >&2; exit 1; }
}

# --- comparisons that say what they saw
same() { [ "$1" = "$2" ] || { printf 'got:  %s\nwant: %s\n' "$1" "$2"; return 1; }; }
has() { case $1 in *"$2"*) ;; *) printf 'no "%s" in: %s\n' "$2" "$1"; return 1 ;; esac; }
fails() { # fails TEXT CMD...: it ends with an error that holds TEXT
  local want=$1 out; shift
  if out=$("$@" 2>&1); then echo "no error: $out"; return 1; fi
  has "$out" "$want"
}
