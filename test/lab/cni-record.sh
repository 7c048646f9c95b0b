#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Stands in for a CNI plugin and records what the runtime says to it. Install it under the plugin's
# name, with the real plugin beside it as NAME.real: every call goes through unchanged, and NAME.calls
# gets one JSON line with the CNI_* environment, stdin, stdout and exit status. So a conflist can stay
# as a user would write it, without a logging plugin chained behind.
in=$(cat)
out=$(printf '%s' "$in" | "$0.real")
status=$?
env=$(env | grep '^CNI_' | jq -Rn '[inputs | capture("^(?<key>[^=]+)=(?<value>.*)$")] | from_entries')
jq -cn --arg i "$in" --arg o "$out" --argjson e "$env" --argjson s "$status" \
  'def j: . as $t | try fromjson catch $t;
   {time: (now | todate), env: $e, stdin: ($i | j), stdout: ($o | j), status: $s}' >>"$0.calls"
[ -z "$out" ] || printf '%s\n' "$out"
exit "$status"
