#!/usr/bin/env bash
# Prints what differs between the minor versions of Cluster API that the tests run with, as NAME=VALUE lines.
#
#   hack/kube/cluster-api.sh [MINOR]
#
# MINOR is like v1.14, or latest; without it, it is that of hack/kube/go.mod. The lines:
#   module    folder of the Go module that pins the version and builds its programs
#   version   such as v1.14.2
#   dir       folder of sigs.k8s.io/cluster-api in the module cache
#   core      folder below dir with the manager of the core provider, and its config/
#   programs  folder below KUBEBUILDER_ASSETS with its managers
set -euo pipefail

cd "$(dirname "$0")"
minor=${1:-}

case $minor in
  v1.13) core=. ;;
  *) core=core ;;
esac

module=$PWD
case $minor in
  latest) module=$(cd ../.. && pwd)/out/cluster-api-latest ;;
  *) [[ -z $minor || ! -d cluster-api-$minor ]] || module=$PWD/cluster-api-$minor ;;
esac
[[ -e $module/go.mod ]] || {
  echo "hack/kube/cluster-api.sh: $module has no go.mod; run hack/kube/latest.sh" >&2
  exit 2
}

read -r version dir < <(go list -C "$module" -m -f '{{.Version}} {{.Dir}}' sigs.k8s.io/cluster-api)
if [[ -n $minor && $minor != latest && $version != "$minor".* ]]; then
  echo "hack/kube/cluster-api.sh: no module for Cluster API $minor; $module has $version" >&2
  exit 2
fi
if [[ -z $dir ]]; then
  go mod download -C "$module" sigs.k8s.io/cluster-api
  dir=$(go list -C "$module" -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
fi
programs=.
[[ $module == "$PWD" ]] || programs=cluster-api-$version
printf '%s\n' "module=$module" "version=$version" "dir=$dir" "core=$core" "programs=$programs"
