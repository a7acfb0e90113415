#!/usr/bin/env bash
# Prints the folder that holds the root file system of the nodes that test/node boots.
#
#   rootfs=$(hack/node-rootfs.sh)
#
# It is Debian 12 with systemd, cloud-init, containerd and the tools that a node image has, made by mmdebstrap from the
# package sources that apt on this machine already uses. It is kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher/node-rootfs-HASH, where HASH is that of what makes it.
#
# Programs that this machine lacks are installed by apt-get, if that is how it installs programs.
#
# Standard output is the folder and nothing else; progress goes to standard error.
# Exit status: 0 done, 75 this machine cannot do it (the last line says why), else it should have worked.
set -euo pipefail

cd "$(dirname "$0")/.."
name=node-rootfs
# shellcheck source=hack/node-debian.sh
. hack/node-debian.sh

# dbus: systemctl of an unprivileged user. libblkid1: ignition. The last two lines: what kubeadm and kubelet look for, and
# a network for Pods.
packages=(
  systemd systemd-sysv dbus cloud-init containerd runc ca-certificates curl iproute2 iptables util-linux procps kmod libblkid1
  conntrack ethtool socat nftables
  containernetworking-plugins
)

[[ $(uname -s) == Linux ]] || cannot "booting a node needs Linux"
[[ $(id -u) == 0 ]] || cannot "booting a node needs root"
need systemd-nspawn=systemd-container unshare=util-linux ip=iproute2 flock=util-linux

rootfs=$(folder_of)
[[ -d $rootfs ]] || alone
if [[ ! -d $rootfs ]]; then
  work=$(mktemp -d "$cache/$name.XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  note "making $rootfs"
  # Few public certificates: update-ca-certificates starts several programs for each, at every boot.
  # shellcheck disable=SC2016 # $1 is the root file system, for mmdebstrap to fill in
  bootstrap minbase --include="$(IFS=,; echo "${packages[*]}")" \
    --customize-hook='few=$(grep -m 5 ^mozilla/ "$1/etc/ca-certificates.conf"); echo "$few" >"$1/etc/ca-certificates.conf"' \
    --customize-hook='chroot "$1" update-ca-certificates --fresh'

  # One data source, no network to configure, and none of the modules whose programs are not there: an error of theirs
  # would hide one of the bootstrap.
  cat >"$work/root/etc/cloud/cloud.cfg.d/99_node_test.cfg" <<'CFG'
datasource_list: [ NoCloud ]
network: { config: disabled }
CFG
  sed -i -E '/^ *- (ssh|locale)$/d' "$work/root/etc/cloud/cloud.cfg"
  mv -T "$work/root" "$rootfs"
fi
echo "$rootfs"
