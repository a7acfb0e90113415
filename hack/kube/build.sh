#!/usr/bin/env bash
# Builds programs of a management cluster from Go modules, for machines that cannot download released binaries.
#
#   hack/kube/build.sh OUT_DIR PROGRAM...
#
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

kubernetes=$(version_of k8s.io/kubernetes)
cluster_api=$(version_of sigs.k8s.io/cluster-api)
IFS=. read -r kube_major kube_minor _ <<<"${kubernetes#v}"
IFS=. read -r capi_major capi_minor _ <<<"${cluster_api#v}"
kube_flags="-X k8s.io/component-base/version.gitVersion=$kubernetes -X k8s.io/component-base/version.gitMajor=$kube_major -X k8s.io/component-base/version.gitMinor=$kube_minor"
capi_flags="-X sigs.k8s.io/cluster-api/version.gitVersion=$cluster_api -X sigs.k8s.io/cluster-api/version.gitMajor=$capi_major -X sigs.k8s.io/cluster-api/version.gitMinor=$capi_minor"

for program in "$@"; do
  if [[ -x $out/$program ]]; then
    continue
  fi
  case $program in
    etcd) package=go.etcd.io/etcd/server/v3 flags= ;;
    kube-apiserver | kube-controller-manager | kubectl) package=k8s.io/kubernetes/cmd/$program flags=$kube_flags ;;
    capi-core) package=sigs.k8s.io/cluster-api/core flags=$capi_flags ;;
    capi-bootstrap-kubeadm) package=sigs.k8s.io/cluster-api/bootstrap/kubeadm flags=$capi_flags ;;
    capi-controlplane-kubeadm) package=sigs.k8s.io/cluster-api/controlplane/kubeadm flags=$capi_flags ;;
    clusterctl) package=sigs.k8s.io/cluster-api/cmd/clusterctl flags=$capi_flags ;;
    *)
      echo "hack/kube/build.sh: unknown program $program" >&2
      exit 2
      ;;
  esac
  start=$SECONDS
  echo "building $program from Go modules (once; a few minutes on a small machine)" >&2
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $flags" -o "$partial/$program" "$package"
  mv "$partial/$program" "$out/$program"
  echo "built $program in $((SECONDS - start)) s" >&2
done
