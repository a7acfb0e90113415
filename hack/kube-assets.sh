#!/usr/bin/env bash
# Prints the folder that holds etcd, kube-apiserver and kubectl, for KUBEBUILDER_ASSETS of envtest.
#
#   KUBEBUILDER_ASSETS=$(hack/kube-assets.sh) go test ./test/...
#
# The first of these that is complete:
#   1. $KUBEBUILDER_ASSETS
#   2. what an earlier run built in ${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher
#   3. setup-envtest: what it has installed, else what it can download
#   4. a build from Go modules (hack/kube), kept for the next run
#
# Standard output is only the folder; progress is written to standard error.
set -euo pipefail

cd "$(dirname "$0")/.."

programs=(etcd kube-apiserver kubectl)
version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes v\([0-9.]*\).*|\1|p' hack/kube/go.mod | head -n 1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher
built=$cache/kube-v$version-$(go env GOOS)-$(go env GOARCH)

note() { echo "kube-assets: $*" >&2; }

complete() {
  local program
  for program in "${programs[@]}"; do
    [[ -x $1/$program ]] || return 1
  done
}

# offer prints a folder and ends the script if the folder is complete.
offer() {
  if [[ -n $1 ]] && complete "$1"; then
    echo "$1"
    exit 0
  fi
}

# bounded runs a command for at most two minutes where timeout(1) exists, else as long as it takes.
bounded() {
  if command -v timeout >/dev/null; then
    timeout 120 "$@"
  else
    "$@"
  fi
}

setup_envtest() {
  bounded go tool -modfile=go.tools.mod setup-envtest use "${version%.*}.x" -p path "$@"
}

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  offer "$KUBEBUILDER_ASSETS"
  note "KUBEBUILDER_ASSETS lacks one of: ${programs[*]}; looking elsewhere"
fi
offer "$built"

if found=$(setup_envtest -i 2>/dev/null); then
  offer "$found"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
note "no Kubernetes $version programs yet; asking setup-envtest"
if found=$(setup_envtest 2>"$log"); then
  offer "$found"
fi
note "setup-envtest has none for this machine: $(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c1-300)"

mkdir -p "$cache"
if command -v flock >/dev/null; then
  # A second run waits for the first instead of building the same; without flock both build, and renames keep that harmless.
  exec 9>"$built.lock"
  flock 9
fi
hack/kube/build.sh "$built" "${programs[@]}" >&2
offer "$built"
note "building Kubernetes $version left $built incomplete"
exit 1
