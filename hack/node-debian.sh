# shellcheck shell=bash disable=SC2154
# What hack/node-rootfs.sh and hack/node-squid.sh have in common: root file systems from Debian's packages, by mmdebstrap
# from the package sources that apt on this machine already uses. To be sourced by a
# script that has set $name, its own without a suffix, and $work, a folder for what is being made.

suite=bookworm
cache=${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher

note() { echo "$name: $*" >&2; }

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

# folder_of prints where the root file system of a script is kept: its name holds a hash of what makes it.
folder_of() { echo "$cache/$name-$(cat "hack/$name.sh" hack/node-debian.sh | sha256sum | cut -c1-16)"; }

# alone waits until no other run of the script is making the same.
alone() {
  mkdir -p "$cache"
  exec 9>"$cache/$name.lock"
  flock 9
}

# bootstrap makes a root file system in $work/root: bootstrap VARIANT OPTION...
bootstrap() {
  local variant=$1 options=()
  shift
  command -v apt-get >/dev/null || cannot "mmdebstrap takes its package sources from apt, and there is no apt-get"
  need mmdebstrap=mmdebstrap
  package_sources
  if ! grep -q " $suite main$" "$work/sources.list"; then
    apt-get -qq update >&2
    package_sources
  fi
  grep -q " $suite main$" "$work/sources.list" || cannot "apt on this machine has no package source of Debian $suite"

  # How this machine reaches them, but nothing that runs a program.
  while IFS= read -r line; do
    options+=(--aptopt="$line")
  done < <(apt-config dump | grep -Ei '^Acquire::(Check-[A-Za-z-]*|https?::(Proxy|[^: ]*::Proxy|CaInfo|Timeout)) ' || true)

  # shellcheck disable=SC2016 # $1 is the root file system, for mmdebstrap to fill in
  mmdebstrap --quiet --mode=root --variant="$variant" \
    --aptopt='APT::Install-Recommends "false"' "${options[@]}" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/apt.conf.d/99mmdebstrap' \
    --customize-hook='rm -f "$1"/etc/resolv.conf "$1"/etc/hostname' \
    "$@" "$suite" "$work/root" "$work/sources.list" >&2
}

# shellcheck disable=SC2016 # fields of apt-get
package_sources() {
  apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)' 'Created-By: Packages' |
    awk -F'|' -v suite="$suite" '
      $1 == "Debian" && $4 == "main" && ($2 == suite || index($2, suite "-") == 1) { print "deb", $3, $2, $4 }' | sort -u >"$work/sources.list"
}
