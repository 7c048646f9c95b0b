# SPDX-License-Identifier: Apache-2.0
#
# Building commands of other projects from their Go modules (sourced, after lib.sh): W/src/NAME-VERSION is
# the tiny module that requires them, W/bin/NAME the command, W/bin/NAME.version says which it is.
# shellcheck shell=bash disable=SC2164
: "${JOBS:=2}"
mkdir -p "$W/bin" "$W/src"
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=mod

# wrap NAME MODULE VERSION [SED]: enter a tiny module that requires MODULE@VERSION with that module's own
# go.mod pins, which is the set of dependencies it was tested with. SED edits them: replacements by a
# path within the module mean nothing outside, and are taken away unless it makes something else of them.
wrap() {
  local d=$W/src/$1-$3 mod
  mkdir -p "$d"; cd "$d"
  [ ! -f .ready ] || return 0
  mod=$(go mod download -json "$2@$3" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
  sed -e "s#^module .*#module lab.local/$1#" ${4:+-e "$4"} -e '/=> \.\.\?\//d' "$mod" >go.mod
  go mod edit -require="$2@$3"
  : >go.sum
  touch .ready
}

# build VERSION PACKAGE LDFLAGS [NAME]: a command by its import path, or "PATH.test" the tests of a package
build() {
  local name=${4:-${2##*/}} s=$SECONDS
  local out=$W/bin/$name make=(go build)
  if [ "$(cat "$out.version" 2>/dev/null)" = "$1" ] && [ -x "$out" ]; then return; fi
  case $2 in *.test) make=(go test -c) ;; esac
  nice "${make[@]}" -p "$JOBS" -ldflags "-s -w $3" -o "$out.new" "${2%.test}"
  mv "$out.new" "$out"; echo "$1" >"$out.version"
  echo "built $name $1 in $((SECONDS - s)) s"
}
