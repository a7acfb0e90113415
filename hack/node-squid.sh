#!/usr/bin/env bash
# Prints the folder that holds the root file system of the proxies that test/node runs: squid with TLS, and what it links.
#
#   rootfs=$(hack/node-squid.sh)
#
# The packages are unpacked and not configured, so that no service of this machine is made or started. It is kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher/node-squid-HASH, where HASH is that of what makes it.
#
# Standard output is the folder and nothing else; progress goes to standard error.
# Exit status: 0 done, 75 this machine cannot do it (the last line says why), else it should have worked.
set -euo pipefail

cd "$(dirname "$0")/.."
name=node-squid
# shellcheck source=hack/node-debian.sh
. hack/node-debian.sh

[[ $(uname -s) == Linux ]] || cannot "unpacking squid needs Linux"
[[ $(id -u) == 0 ]] || cannot "unpacking squid needs root"
need flock=util-linux

rootfs=$(folder_of)
[[ -d $rootfs ]] || alone
if [[ ! -d $rootfs ]]; then
  work=$(mktemp -d "$cache/$name.XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  note "making $rootfs"
  bootstrap extract --include=squid-openssl,openssl
  # Accounts are made by what is not run here.
  mkdir -p "$work/root/etc" "$work/root/tmp" "$work/root/run" "$work/root/proc" "$work/root/dev" "$work/root/work"
  printf 'root:x:0:0:root:/root:/bin/sh\nproxy:x:13:13:proxy:/:/bin/false\n' >"$work/root/etc/passwd"
  printf 'root:x:0:\nproxy:x:13:\n' >"$work/root/etc/group"
  printf 'passwd: files\ngroup: files\nhosts: files\n' >"$work/root/etc/nsswitch.conf"
  chroot "$work/root" /usr/sbin/squid -v >/dev/null # it finds its libraries
  mv -T "$work/root" "$rootfs"
fi
echo "$rootfs"
