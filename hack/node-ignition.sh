#!/usr/bin/env bash
# Prints the path of Flatcar's ignition program, which test/node applies Ignition configs with.
#
#   ignition=$(hack/node-ignition.sh)
#
# It is built from the Go module in the version that go.mod names, and kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher.
#
# Standard output is the path and nothing else; progress goes to standard error.
# Exit status: 0 done, 75 this machine cannot do it (the last line says why), else it should have worked.
set -euo pipefail

cd "$(dirname "$0")/.."

module=github.com/flatcar/ignition
version=$(go list -m -f '{{.Version}}' "$module")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher
program=$cache/node-ignition-$version-$(go env GOARCH)

note() { echo "node-ignition: $*" >&2; }

cannot() {
  note "$*"
  exit 75
}

installed() { command -v "${CC:-gcc}" >/dev/null && echo '#include <blkid/blkid.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1; }

install() { DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends gcc libc6-dev libblkid-dev >&2; }

if [[ ! -x $program ]]; then
  if ! installed; then
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
      cannot "building ignition needs a C compiler and the header blkid/blkid.h (package libblkid-dev)"
    fi
    note "installing gcc, libc6-dev and libblkid-dev"
    install || { apt-get -qq update >&2 && install; } || cannot "apt-get does not install libblkid-dev"
  fi
  mkdir -p "$cache"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  note "building ignition $version"
  # A copy, because the program is in an internal folder and its module is not complete in the graph of this one. Its vendor
  # folder came without what it lists.
  go mod download "$module"
  cp -R "$(go list -m -f '{{.Dir}}' "$module")/." "$work"
  chmod -R u+w "$work"
  rm -rf "$work/vendor"
  (cd "$work" && GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=1 go build -trimpath -o "$work/program" ./internal) >&2
  # Built elsewhere, it gets its name in one step.
  cp "$work/program" "$program.$$"
  mv "$program.$$" "$program"
fi
echo "$program"
