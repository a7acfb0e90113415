#!/usr/bin/env bash
# Prints the folder that holds the root file system of the nodes that test/node boots.
#
#   rootfs=$(hack/node-rootfs.sh)
#
# It is Debian 12 with systemd, cloud-init, containerd and the tools that a node image has, made by mmdebstrap from the
# package sources that apt on this machine already uses. It is kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher/node-rootfs-HASH, where HASH is that of this file.
#
# Programs that this machine lacks are installed by apt-get, if that is how it installs programs.
#
# Standard output is the folder and nothing else; progress goes to standard error.
# Exit status: 0 done, 75 this machine cannot do it (the last line says why), else it should have worked.
set -euo pipefail

cd "$(dirname "$0")/.."

suite=bookworm
# dbus: systemctl of an unprivileged user. libblkid1: ignition.
packages=(
  systemd systemd-sysv dbus cloud-init containerd runc ca-certificates curl iproute2 iptables util-linux procps kmod libblkid1
)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher
rootfs=$cache/node-rootfs-$(sha256sum "hack/${0##*/}" | cut -c1-16)

note() { echo "node-rootfs: $*" >&2; }

cannot() {
  note "$*"
  exit 75
}

# need installs Debian packages that hold the given programs: need PROGRAM=PACKAGE...
need() {
  local pair missing=()
  for pair; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || cannot "package ${missing[*]} is missing and there is no apt-get to install it"
  note "installing ${missing[*]}"
  install "${missing[@]}" || { apt-get -qq update >&2 && install "${missing[@]}"; } ||
    cannot "apt-get does not install ${missing[*]}"
}

install() { DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >&2; }

[[ $(uname -s) == Linux ]] || cannot "booting a node needs Linux"
[[ $(id -u) == 0 ]] || cannot "booting a node needs root"
need systemd-nspawn=systemd-container unshare=util-linux ip=iproute2 flock=util-linux

if [[ ! -d $rootfs ]]; then
  mkdir -p "$cache"
  exec 9>"$cache/node-rootfs.lock"
  flock 9
fi
if [[ ! -d $rootfs ]]; then
  need mmdebstrap=mmdebstrap
  work=$(mktemp -d "$cache/node-rootfs.XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT

  # shellcheck disable=SC2016 # fields of apt-get
  targets() {
    apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)' 'Created-By: Packages' |
      awk -F'|' -v suite="$suite" '
        $1 == "Debian" && $4 == "main" && ($2 == suite || index($2, suite "-") == 1) { print "deb", $3, $2, $4 }' | sort -u >"$work/sources.list"
  }
  command -v apt-get >/dev/null || cannot "mmdebstrap takes its package sources from apt, and there is no apt-get"
  targets
  if ! grep -q " $suite main$" "$work/sources.list"; then
    apt-get -qq update >&2
    targets
  fi
  grep -q " $suite main$" "$work/sources.list" || cannot "apt on this machine has no package source of Debian $suite"

  # How this machine reaches them, but nothing that runs a program.
  options=()
  while IFS= read -r line; do
    options+=(--aptopt="$line")
  done < <(apt-config dump | grep -Ei '^Acquire::(Check-[A-Za-z-]*|https?::(Proxy|[^: ]*::Proxy|CaInfo|Timeout)) ' || true)

  note "making $rootfs"
  # shellcheck disable=SC2016 # $1 is the root file system, for mmdebstrap to fill in
  mmdebstrap --quiet --mode=root --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" \
    --aptopt='APT::Install-Recommends "false"' "${options[@]}" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/apt.conf.d/99mmdebstrap' \
    --customize-hook='rm -f "$1"/etc/resolv.conf "$1"/etc/hostname' \
    "$suite" "$work/root" "$work/sources.list" >&2

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
