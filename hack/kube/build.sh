#!/usr/bin/env bash
# Builds programs of a management cluster from Go modules, for machines that cannot download released binaries.
#
#   [CAPI=MINOR] hack/kube/build.sh OUT_DIR PROGRAM...
#
# CAPI chooses the minor version of Cluster API whose managers are built, into the folder below OUT_DIR that
# hack/kube/cluster-api.sh names. All else is of hack/kube/go.mod.
# Programs that OUT_DIR already holds are kept. A program appears under its name only when it is complete, so that runs at
# the same time do not disturb each other. Progress goes to standard error.
set -euo pipefail

out=$1
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")"
partial=$(mktemp -d "$out/.partial.XXXXXX")
trap 'rm -rf "$partial"' EXIT

version_of() { go list -m -f '{{.Version}}' "$1"; }

# flags VARIABLES VERSION has the linker write a version into a package.
flags() {
  local major minor
  IFS=. read -r major minor _ <<<"${2#v}"
  echo "-X $1.gitVersion=$2 -X $1.gitMajor=$major -X $1.gitMinor=$minor"
}

kubernetes=$(version_of k8s.io/kubernetes)
kube_flags=$(flags k8s.io/component-base/version "$kubernetes")
capi_flags=$(flags sigs.k8s.io/cluster-api/version "$(version_of sigs.k8s.io/cluster-api)")
minor=$(./cluster-api.sh "${CAPI:-}")
declare -A manager
while IFS='=' read -r name value; do
  manager[$name]=$value
done <<<"$minor"
manager_flags=$(flags sigs.k8s.io/cluster-api/version "${manager[version]}")

for program in "$@"; do
  module=. file=$program
  if [[ $program == capi-* ]]; then
    module=${manager[module]} file=${manager[programs]}/$program
    file=${file#./}
  fi
  if [[ -x $out/$file ]]; then
    continue
  fi
  case $program in
    etcd) package=go.etcd.io/etcd/server/v3 flags= ;;
    kube-apiserver | kube-controller-manager | kubectl) package=k8s.io/kubernetes/cmd/$program flags=$kube_flags ;;
    capi-core) package=sigs.k8s.io/cluster-api/${manager[core]} flags=$manager_flags ;;
    capi-bootstrap-kubeadm) package=sigs.k8s.io/cluster-api/bootstrap/kubeadm flags=$manager_flags ;;
    capi-controlplane-kubeadm) package=sigs.k8s.io/cluster-api/controlplane/kubeadm flags=$manager_flags ;;
    clusterctl) package=sigs.k8s.io/cluster-api/cmd/clusterctl flags=$capi_flags ;;
    *)
      echo "hack/kube/build.sh: unknown program $program" >&2
      exit 2
      ;;
  esac
  start=$SECONDS
  echo "building $file from Go modules (once; a few minutes on a small machine)" >&2
  CGO_ENABLED=0 go build -C "$module" -trimpath -ldflags "-s -w $flags" -o "$partial/$program" "${package%/.}"
  mkdir -p "$(dirname "$out/$file")"
  mv "$partial/$program" "$out/$file"
  echo "built $file in $((SECONDS - start)) s" >&2
done
