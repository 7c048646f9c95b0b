#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh: run every fuzz target of the repository, and print a line each:
#
#   fuzz: FuzzParse 10m0s, 1234567 execs, 0 crashes
#
#   FUZZ_TIME  how long each runs            [1m]
#   JOBS       how many at once, each with one worker [2]
#   TARGETS    names, or beginnings of them  [Fuzz]
#
# What Go's fuzzer found of a crash stays in the package's testdata/fuzz, and is printed. Ends non-zero after one.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
cd "$here/.."
export FUZZ_TIME=${FUZZ_TIME:-1m} LOGS
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT

# one PACKAGE TARGET
one() {
  local log=$LOGS/$2 crashes=0 execs noise='^fuzz: |^--- FAIL: |^ *context deadline exceeded$|^(FAIL|PASS|ok|exit status)'
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZ_TIME" -fuzzminimizetime 10x -parallel 1 -timeout 0 "$1" >"$log" 2>&1 ||
    # On a busy machine the fuzzer takes the end of its own time for a failure.
    ! grep -qvE "$noise" "$log" || crashes=1
  execs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -1)
  echo "fuzz: $2 $FUZZ_TIME, ${execs:-0} execs, $crashes crashes"
  [ "$crashes" = 0 ] || { grep -v '^fuzz: elapsed' "$log" >&2; return 1; }
}
export -f one

pattern=$(tr -s ' ' '|' <<<"${TARGETS:-Fuzz}")
list=$(grep -rEo --include='*_test.go' "^func ($pattern)[A-Za-z0-9]*\(f \*testing.F" . |
  sed -E 's|/[^/]*:func (Fuzz[A-Za-z0-9]*).*| \1|' | sort) || true
[ -n "$list" ] || { echo "fuzz.sh: no target is called $TARGETS" >&2; exit 2; }
# shellcheck disable=SC2016 # the inner shell's arguments
xargs -P "${JOBS:-2}" -L 1 bash -c 'one "$1" "$2"' bash <<<"$list"
