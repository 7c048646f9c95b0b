#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bpffs.sh COMMAND...: run COMMAND with a bpffs at /sys/fs/bpf. Where none is mounted it gets one in a
# mount namespace of its own, so that nothing needs to be unmounted afterwards, however it ends.
set -euo pipefail
[ "$(stat -f -c %T /sys/fs/bpf 2>/dev/null)" != bpf_fs ] || exec "$@"
# shellcheck disable=SC2016 # the inner shell's arguments
exec unshare --mount -- sh -c 'mount -t bpf bpf /sys/fs/bpf && exec "$@"' sh "$@"
