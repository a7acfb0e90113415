#!/usr/bin/env bash
# Writes out/cluster-api-latest, a Go module of the newest Cluster API, release candidates included, for CAPI=latest, and
# says whether the product compiles with its types.
set -euo pipefail

cd "$(dirname "$0")/../.."
out=out/cluster-api-latest
version=$(go list -m -versions -f '{{range .Versions}}{{println .}}{{end}}' sigs.k8s.io/cluster-api | sed '/^$/d' | tail -n 1)
echo "the newest Cluster API is $version" >&2
rm -rf "$out"
mkdir -p "$out"
cat >"$out/programs.go" <<'GO'
//go:build tools

package latest

import (
	_ "sigs.k8s.io/cluster-api/bootstrap/kubeadm"
	_ "sigs.k8s.io/cluster-api/controlplane/kubeadm"
	_ "sigs.k8s.io/cluster-api/core"
)
GO
(
  cd "$out"
  go mod init latest 2>/dev/null
  go get "sigs.k8s.io/cluster-api@$version" "sigs.k8s.io/cluster-api/api@$version"
  go mod tidy
) >"$out/module.log" 2>&1 || {
  cat "$out/module.log" >&2
  echo "the managers of Cluster API $version cannot be resolved, or are in other packages: see hack/kube/latest.sh" >&2
  exit 1
}

cp go.mod "$out/product.mod"
cp go.sum "$out/product.sum"
go get -modfile="$out/product.mod" "sigs.k8s.io/cluster-api@$version" "sigs.k8s.io/cluster-api/api@$version" >"$out/product.log" 2>&1 &&
  go build -modfile="$out/product.mod" ./cmd/... ./internal/... >>"$out/product.log" 2>&1 || {
  cat "$out/product.log" >&2
  echo "the product does not compile with the types of Cluster API $version" >&2
  exit 1
}
echo "the product compiles with the types of Cluster API $version" >&2
