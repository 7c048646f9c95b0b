#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# vm-run.sh KERNEL COMMAND [ARG...]: run COMMAND as root under a Debian kernel in qemu.
#
# KERNEL: a version prefix (5.10, 6.12, 6.12.95: the newest match is taken),
#   a full name (6.12.95+deb12-cloud-amd64) or a package (linux-image-...).
# The guest sees the host's file tree; its writes go to a tmpfs, except below
# VM_SHARE, which is the host's own directory. The command starts in the
# current directory, its stdout and stderr come out on stdout, its exit status
# is returned. 124: timed out; 125: this script failed; 126: the guest died.
# No network device but lo. Works as: go test -exec "vm-run.sh 6.12" ./...
#
# Environment:
#   VM_CACHE    where kernels and tools are kept      [/tmp/vm-run]
#   VM_SHARE    writable directory                    [$PWD]
#   VM_TIMEOUT  seconds for boot and command          [180]
#   VM_MEM      guest memory in MiB                   [1024]
#   VM_CPUS     guest processors                      [2]
#   VM_ACCEL    kvm, tcg or auto                      [auto]
#   VM_CLOCK    instructions: without kvm the guest's clock goes by the instructions that it executes, on one
#               processor. Slower, but what else this machine does has no say in what the guest measures.
#   VM_CPU      qemu cpu model                        [max,-cx16,la57=off]
#               (with cx16, qemu 7.2 without kvm crashes newer kernels at boot)
#   VM_QEMU     qemu, options may follow              [qemu-system-x86_64]
#   VM_FLAVOUR  flavour a version prefix stands for   [cloud-amd64]
#   VM_FS       virtiofs, 9p or auto                  [auto]
#   VM_MODULES  modules to load before the command    []
#   VM_PASS     names of variables to pass on         []
#   VM_APPEND   more kernel parameters                []
#   VM_SUITES   Debian suites to look in              [see below]
#   VM_DEBUG    1: show the guest's console on stderr
# "vm-run.sh --fetch KERNEL..." only fills the cache; "--list" names kernels.
set -euo pipefail

: "${VM_CACHE:=/tmp/vm-run}" "${VM_SHARE:=$PWD}" "${VM_TIMEOUT:=180}" "${VM_MEM:=1024}"
: "${VM_CPUS:=2}" "${VM_ACCEL:=auto}" "${VM_CLOCK:=}" "${VM_CPU:=max,-cx16,la57=off}" "${VM_FLAVOUR:=cloud-amd64}"
: "${VM_FS:=auto}" "${VM_MODULES:=}" "${VM_PASS:=}" "${VM_APPEND:=}" "${VM_DEBUG:=}"
: "${VM_QEMU:=qemu-system-x86_64}"
: "${VM_SUITES:=bullseye bullseye-security bookworm bookworm-security bookworm-backports trixie trixie-security trixie-backports}"

die() { echo "vm-run: $*" >&2; exit 125; }
say() { echo "vm-run: $*" >&2; }

# --- packages: a private apt state, so that the host's own stays as it is ---

APTCONF=$VM_CACHE/apt/apt.conf
apt_() { APT_CONFIG=$APTCONF "$@"; }

apt_setup() {
  local stamp=$VM_CACHE/apt/updated main= sec= uri rel s
  local key=/usr/share/keyrings/debian-archive-keyring.gpg
  [ "$(cat "$stamp" 2>/dev/null)" = "$VM_SUITES" ] && [ -z "$(find "$stamp" -mtime +6)" ] && return
  # The mirrors are those of the host's own sources.
  while read -r uri rel; do
    case $rel in *-security) sec=${sec:-$uri} ;; *) main=${main:-$uri} ;; esac
  done < <(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' |
             grep -E '/debian(-security)?/? ')
  [ -n "$main" ] || die "no Debian source in apt's configuration (apt-get update?)"
  [ -e "$key" ] || key=
  mkdir -p "$VM_CACHE"/apt/{lists,archives}/partial
  for s in $VM_SUITES; do
    uri=$main
    case $s in *-security) uri=$sec; [ -n "$uri" ] || continue ;; esac
    echo "deb ${key:+[signed-by=$key] }$uri $s main"
  done >"$VM_CACHE/apt/sources.list"
  cat >"$APTCONF" <<CONF
Dir::Etc::sourcelist "$VM_CACHE/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$VM_CACHE/apt/lists";
Dir::Cache "$VM_CACHE/apt";
Dir::Cache::archives "$VM_CACHE/apt/archives";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
CONF
  say "reading package lists"
  apt_ timeout 300 apt-get -qq update >&2 || say "apt-get update was not complete"
  [ -n "$(apt_ apt-cache pkgnames linux-image-)" ] || die "no package lists"
  printf %s "$VM_SUITES" >"$stamp"
}

has_pkg() { [ -n "$(apt_ apt-cache policy "$1" | sed -n '/Candidate: [^(]/p')" ]; }

unpack() { # DIR PACKAGE...: downloads and unpacks, installs nothing
  local dir=$1 d tmp; shift
  tmp=$(mktemp -d "$VM_CACHE/get.XXXXXX")
  if (cd "$tmp" && apt_ timeout 600 apt-get -qq download "$@" >&2); then
    for d in "$tmp"/*.deb; do dpkg-deb -x "$d" "$dir"; done
    rm -rf "$tmp"
  else
    rm -rf "$tmp"; return 1
  fi
}

tools() { # busybox (static) and kmod
  T=$VM_CACHE/tools
  [ -e "$T/ok" ] && return
  apt_setup
  local f host; host=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  rm -rf "$T"; mkdir -p "$T"
  # From the host's release, as kmod is linked dynamically.
  unpack "$T" "busybox-static/$host" "kmod/$host" || die "cannot fetch busybox-static and kmod"
  for f in "$T"/{,usr/}bin/{busybox,kmod}; do
    if [ -x "$f" ]; then cp "$f" "$T/"; fi
  done
  ln -s kmod "$T/depmod"; ln -s kmod "$T/modprobe"
  "$T/busybox" true && "$T/depmod" --version >/dev/null || die "the fetched tools do not run"
  touch "$T/ok"
}

# --- kernels ---

candidates() { # prefix or name -> full names, newest first
  local k=${1#linux-image-}
  case $k in
    *-amd64 | *-arm64) echo "$k" ;;
    *) apt_ apt-cache pkgnames "linux-image-$k" | sed 's/^linux-image-//' |
         grep -E "^${k//./\\.}([.+-].*)?-$VM_FLAVOUR\$" | grep -E '^[0-9]+\.[0-9]+\.[0-9]+' |
         { if [ "$VM_FLAVOUR" = amd64 ]; then grep -vE -- '-(cloud|rt)-'; else cat; fi; } | sort -rV ;;
  esac
}

cached() { # prefix or name -> the newest that is in the cache
  local k=${1#linux-image-} v
  for v in $(cd "$VM_CACHE/kernels" 2>/dev/null && printf '%s\n' */ | tr -d / | sort -rV); do
    [ -e "$VM_CACHE/kernels/$v/ok" ] || continue
    if [ "$v" = "$k" ] || grep -qE "^${k//./\\.}([.+-].*)?-$VM_FLAVOUR\$" <<<"$v"; then echo "$v"; return; fi
  done
}

fetch_one() { # full name -> $VM_CACHE/kernels/NAME
  local v=$1 dst=$VM_CACHE/kernels/$1 t p pk=("linux-image-$1") z
  [ -e "$dst/ok" ] && return
  has_pkg "linux-image-$v" || return 1
  # From 7.0 on the image and the modules are packages of their own.
  for p in binary modules base; do
    if has_pkg "linux-$p-$v"; then pk+=("linux-$p-$v"); fi
  done
  say "fetching ${pk[*]}"
  t=$(mktemp -d "$VM_CACHE/new.XXXXXX")
  unpack "$t/x" "${pk[@]}" || { rm -rf "$t"; return 1; }
  mkdir -p "$t/k/lib/modules"
  for z in "$t/x/boot/vmlinuz-$v" "$t/x/usr/lib/modules/$v/vmlinuz"; do
    if [ -e "$z" ]; then mv "$z" "$t/k/vmlinuz"; fi
  done
  for z in "$t/x/boot/config-$v" "$t/x/usr/lib/modules/$v/config"; do
    if [ -e "$z" ]; then mv "$z" "$t/k/config"; fi
  done
  for z in "$t/x/lib/modules/$v" "$t/x/usr/lib/modules/$v"; do
    if [ -d "$z/kernel" ]; then mv "$z" "$t/k/lib/modules/"; fi
  done
  [ -e "$t/k/vmlinuz" ] && [ -d "$t/k/lib/modules/$v" ] || { say "$v: packages are incomplete"; rm -rf "$t"; return 1; }
  # busybox cannot load compressed modules on every kernel
  find "$t/k/lib/modules" -name '*.ko.xz' -print0 | xargs -0r -n 32 -P "$(nproc)" xz -dq
  find "$t/k/lib/modules" -name '*.ko.zst' -print0 | xargs -0r -n 32 -P "$(nproc)" zstd -dq --rm
  "$VM_CACHE/tools/depmod" -b "$t/k" "$v"
  touch "$t/k/ok"
  rm -rf "$dst"; mkdir -p "$VM_CACHE/kernels"; mv "$t/k" "$dst"; rm -rf "$t"
}

kernel() { # prefix or name -> sets V
  local v
  mkdir -p "$VM_CACHE"
  exec 9>"$VM_CACHE/lock"; flock -w 900 9 || die "the cache is locked"
  tools
  v=${1#linux-image-}
  if [ ! -e "$VM_CACHE/kernels/$v/ok" ]; then
    local found=
    if (apt_setup); then
      for v in $(candidates "$1"); do
        if fetch_one "$v"; then found=1; break; fi
      done
    fi
    if [ -z "$found" ]; then # no mirror, or it has dropped it
      v=$(cached "$1")
      [ -n "$v" ] || die "no kernel for '$1' in: $VM_SUITES"
    fi
  fi
  V=$v
  initrd "$VM_CACHE/kernels/$V"
  exec 9>&-
}

# --- initramfs: mounts the host's tree, then runs the command in it ---

initrd() {
  local k=$1 d m line self; self=$(md5sum <"$0")
  [ "$(cat "$k/initrd.id" 2>/dev/null)" = "$self" ] && return
  d=$(mktemp -d "$VM_CACHE/ird.XXXXXX")
  mkdir -p "$d"/{bin,m,proc,sys,dev,host,rw,new,vm}
  cp -L "$VM_CACHE/tools/busybox" "$d/bin/busybox"
  : >"$d/m/load"
  for m in virtio_pci virtio_console virtiofs 9pnet_virtio 9p overlay; do
    while read -r line; do
      case $line in
        insmod*) line=${line#insmod }; line=${line%% *}
          cp -n "$line" "$d/m/"; echo "${line##*/}" >>"$d/m/load" ;;
      esac
    done < <("$VM_CACHE/tools/modprobe" -S "${k##*/}" -d "$k" --show-depends "$m" 2>/dev/null || true)
  done
  cat >"$d/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
fail() { echo "vm-run: guest: $*"; poweroff -f; }
while read -r m; do insmod "/m/$m" 2>/dev/null; done </m/load
for w in $(cat /proc/cmdline); do
  case $w in vm.run=*) run=${w#*=} ;; vm.fs=*) fs=${w#*=} ;; esac
done
case $fs in
  virtiofs) mount -t virtiofs host /host || fail "no virtiofs" ;;
  9p) mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host || fail "no 9p" ;;
esac
. "/host$run/env" || fail "no environment"
mount -t tmpfs rw /rw; mkdir /rw/up /rw/wk
mount -t overlay -o lowerdir=/host,upperdir=/rw/up,workdir=/rw/wk overlay /new || fail "no overlay"
mount --bind "/host$VM_SHARE" "/new$VM_SHARE" || fail "cannot bind $VM_SHARE"
mount -t tmpfs run /new/run; mkdir -p /new/run/vm /new/run/lock
v=$(uname -r)
mkdir -p "/new/lib/modules/$v"
mount --bind "/host$VM_CACHE/kernels/$v/lib/modules/$v" "/new/lib/modules/$v"
cp /bin/busybox /new/run/vm/; ln -s busybox /new/run/vm/modprobe
cp "/host$run/cmd" "/host$run/env" /vm/stage2 /new/run/vm/
mount -t proc proc /new/proc; mount -t sysfs sysfs /new/sys; mount -t devtmpfs dev /new/dev
cd /new && exec chroot /new /run/vm/busybox sh /run/vm/stage2
INIT
  cat >"$d/vm/stage2" <<'INIT'
b=/run/vm/busybox
$b mkdir -p /dev/pts /dev/shm
$b mount -t devpts devpts /dev/pts; $b mount -t tmpfs shm /dev/shm
[ -e /dev/fd ] || $b ln -s /proc/self/fd /dev/fd
[ -e /dev/stdin ] || { $b ln -s /proc/self/fd/0 /dev/stdin; $b ln -s /proc/self/fd/1 /dev/stdout; $b ln -s /proc/self/fd/2 /dev/stderr; }
$b mount -t cgroup2 cgroup2 /sys/fs/cgroup
$b mount -t bpf bpf /sys/fs/bpf
$b mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
$b mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
echo /run/vm/modprobe >/proc/sys/kernel/modprobe
$b hostname vm; $b ip link set lo up
for p in /sys/class/virtio-ports/*; do
  case $($b cat $p/name) in out) out=/dev/${p##*/} ;; rc) rc=/dev/${p##*/} ;; esac
done
. /run/vm/env
for m in $VM_MODULES; do $b modprobe $m || echo "vm-run: guest: no module $m"; done
echo "vm-run: guest: command starts at $($b cut -d' ' -f1 /proc/uptime) s"
$b mkfifo /run/vm/fifo
$b cat /run/vm/fifo >$out & c=$!
$b setsid /bin/sh /run/vm/cmd </dev/null >/run/vm/fifo 2>&1 & p=$!
wait $p; s=$?
# What the command left running ends with it (it may hold the output open).
for p in /proc/[0-9]*; do
  p=${p#/proc/}; [ $p = 1 ] || [ $p = $c ] || kill -9 $p 2>/dev/null
done
wait $c
echo $s >$rc
echo "vm-run: guest: exit status $s at $($b cut -d' ' -f1 /proc/uptime) s"
$b sync; $b poweroff -f
INIT
  chmod +x "$d/init"
  (cd "$d" && find . | "$VM_CACHE/tools/busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$k/initrd.new"
  mv "$k/initrd.new" "$k/initrd"; echo "$self" >"$k/initrd.id"
  rm -rf "$d"
}

# --- run ---

case ${1:-} in
  --list)
    mkdir -p "$VM_CACHE"; apt_setup
    apt_ apt-cache search --names-only "^linux-image-[0-9]+[.][0-9]+[.][0-9].*-$VM_FLAVOUR\$" | cut -d' ' -f1 | sort -V
    exit ;;
  --fetch)
    shift; for k; do kernel "$k"; echo "$V"; done; exit ;;
  '' | -*) sed -n '4,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit 125 ;;
esac
[ $# -ge 2 ] || die "usage: vm-run.sh KERNEL COMMAND [ARG...]"
command -v "${VM_QEMU%% *}" >/dev/null || die "no ${VM_QEMU%% *} (package qemu-system-x86)"
VM_CACHE=$(mkdir -p "$VM_CACHE" && cd "$VM_CACHE" && pwd -P)
VM_SHARE=$(cd "$VM_SHARE" && pwd -P)
[ "$VM_SHARE" != / ] || die "VM_SHARE cannot be /"
kernel "$1"; shift
K=$VM_CACHE/kernels/$V

RUN=$(mktemp -d "$VM_CACHE/run.XXXXXX")
fsd= vm=
cleanup() {
  local p
  for p in $vm $fsd; do kill "$p" 2>/dev/null || true; done
  if [ -n "$vm" ]; then wait "$vm" 2>/dev/null || true; fi
  rm -rf "$RUN"
}
trap cleanup EXIT
trap 'exit 125' INT TERM HUP

{ printf 'VM_SHARE=%q\nVM_CACHE=%q\nVM_MODULES=%q\n' "$VM_SHARE" "$VM_CACHE" "$VM_MODULES"; } >"$RUN/env"
q() { printf "'%s'" "${1//\'/\'\\\'\'}"; } # quoted for any shell
{
  echo "export HOME=/root USER=root VM_KERNEL=$V PATH=$(q "$PATH:/usr/sbin:/sbin:/run/vm")"
  for n in $VM_PASS; do [ -z "${!n+x}" ] || echo "export $n=$(q "${!n}")"; done
  echo "cd $(q "$PWD") || exit 125"
  printf exec; for a; do printf ' %s' "$(q "$a")"; done; echo
} >"$RUN/cmd"

accel=$VM_ACCEL
if [ "$accel" = auto ]; then
  # /dev/kvm alone is not enough: without vmx or svm (KVM_PVM hosts) it cannot run a stock kernel.
  accel=tcg
  if [ -w /dev/kvm ] && grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo; then accel=kvm; fi
fi
if [ "$accel" = tcg ] && [ "$VM_CLOCK" = instructions ]; then
  accel=tcg,thread=single VM_CPUS=1 VM_QEMU="$VM_QEMU -icount shift=1,sleep=off"
fi
[ "$accel" = tcg ] && accel=tcg,thread=multi

virtiofsd=
for f in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do
  if [ -x "$f" ]; then virtiofsd=$f; break; fi
done
if [ "$VM_FS" = auto ]; then
  VM_FS=9p; if [ -n "$virtiofsd" ]; then VM_FS=virtiofs; fi
fi
case $VM_FS in
  virtiofs)
    [ -n "$virtiofsd" ] || die "no virtiofsd"
    "$virtiofsd" --socket-path="$RUN/fs.sock" -o source=/,cache=always,sandbox=chroot >"$RUN/fsd.log" 2>&1 </dev/null &
    fsd=$!
    for ((i = 0; i < 100; i++)); do [ -S "$RUN/fs.sock" ] && break; sleep 0.05; done
    [ -S "$RUN/fs.sock" ] || { cat "$RUN/fsd.log" >&2; die "virtiofsd did not start"; }
    fs=(-object "memory-backend-memfd,id=mem,size=${VM_MEM}M,share=on" -machine memory-backend=mem
        -chardev "socket,id=fs,path=$RUN/fs.sock" -device vhost-user-fs-pci,chardev=fs,tag=host,queue-size=1024) ;;
  9p)
    grep -q '^CONFIG_9P_FS=' "$K/config" || die "$V has no 9p (take VM_FLAVOUR=amd64, or virtiofsd)"
    fs=(-fsdev local,id=fs,path=/,security_model=none,multidevs=remap -device virtio-9p-pci,fsdev=fs,mount_tag=host) ;;
  *) die "VM_FS=$VM_FS?" ;;
esac

# The output goes through a pipe of our own: qemu makes its end non-blocking.
mkfifo "$RUN/pipe"
cat "$RUN/pipe" & out=$!
timeout -k 5 "$VM_TIMEOUT" $VM_QEMU -M pc -accel "$accel" -cpu "$VM_CPU" -smp "$VM_CPUS" -m "$VM_MEM" \
  -nodefaults -no-user-config -display none -no-reboot -nic none \
  -kernel "$K/vmlinuz" -initrd "$K/initrd" \
  -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on vm.run=$RUN vm.fs=$VM_FS $VM_APPEND" \
  -serial "file:$RUN/console" "${fs[@]}" \
  -device virtio-serial-pci -chardev file,id=out,path=/dev/stdout -device virtserialport,chardev=out,name=out \
  -chardev "file,id=rc,path=$RUN/rc" -device virtserialport,chardev=rc,name=rc \
  </dev/null >"$RUN/pipe" 2>"$RUN/qemu.log" &
vm=$!
st=0; wait "$vm" || st=$?
vm=; wait "$out" || true
rc=$(tr -d '\r\n' <"$RUN/rc" 2>/dev/null || true)
if [ -n "$VM_DEBUG" ]; then cat "$RUN/console" >&2; fi
if [ -n "$rc" ]; then exit "$rc"; fi
[ -n "$VM_DEBUG" ] || tail -n 40 "$RUN/console" >&2 2>/dev/null || true
cat "$RUN/qemu.log" >&2
case $st in 124 | 137) say "$V: no end after $VM_TIMEOUT s"; exit 124 ;; esac
say "$V: the guest died (qemu: $st)"; exit 126
