#!/usr/bin/env bash
# Prints the folder that holds the programs of a Kubernetes node: kubeadm, kubelet, kubectl, pause, what runs in the
# containers of a control plane, and cripull, which has containerd pull an image. The programs of the management cluster
# that makes bootstrap data are there too.
#
#   programs=$(hack/node-kube.sh)
#
# They are built from Go modules (hack/kube), linked statically, and kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher. pause is built from the C source that is in k8s.io/kubernetes.
#
# Standard output is the folder and nothing else; progress goes to standard error.
# Exit status: 0 done, 75 this machine cannot do it (the last line says why), else it should have worked.
set -euo pipefail

cd "$(dirname "$0")/.."

shared=(etcd kube-apiserver kube-controller-manager kubectl capi-core capi-bootstrap-kubeadm capi-controlplane-kubeadm)
own=(kubeadm kubelet kube-scheduler kube-proxy cripull)
version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' hack/kube/go.mod | head -n 1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/capi-proxy-patcher
# The folder of hack/kube-assets.sh, which builds some of the same programs.
out=$cache/kube-$version-linux-$(go env GOARCH)

note() { echo "node-kube: $*" >&2; }

cannot() {
  note "$*"
  exit 75
}

[[ $(uname -s) == Linux ]] || cannot "a Kubernetes node needs Linux"
mkdir -p "$out"
exec 9>"$out.node.lock"
flock 9

hack/kube/build.sh "$out" "${shared[@]}" >&2

partial=$(mktemp -d "$out/.partial.XXXXXX")
trap 'rm -rf "$partial"' EXIT
if [[ ! -x $out/pause ]]; then
  command -v "${CC:-gcc}" >/dev/null || cannot "building pause needs a C compiler"
  go mod download -C hack/kube k8s.io/kubernetes
  source=$(go list -C hack/kube -m -f '{{.Dir}}' k8s.io/kubernetes)/build/pause/linux/pause.c
  "${CC:-gcc}" -Os -Wall -static -DVERSION="node" -o "$partial/pause" "$source" >&2 || cannot "building pause needs a static C library"
  mv "$partial/pause" "$out/pause"
fi

IFS=. read -r major minor _ <<<"${version#v}"
at=k8s.io/component-base/version
for program in "${own[@]}"; do
  [[ ! -x $out/$program ]] || continue
  start=$SECONDS
  note "building $program $version from Go modules (once; minutes on a small machine)"
  case $program in
    cripull) package=./cripull ;;
    *) package=k8s.io/kubernetes/cmd/$program ;;
  esac
  (
    cd hack/kube
    CGO_ENABLED=0 go build -trimpath -o "$partial/$program" \
      -ldflags "-s -w -X $at.gitVersion=$version -X $at.gitMajor=$major -X $at.gitMinor=$minor" "$package"
  ) >&2
  mv "$partial/$program" "$out/$program"
  note "built $program in $((SECONDS - start)) s"
done
echo "$out"
