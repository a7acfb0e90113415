#!/usr/bin/env bash
# Takes capabilities out, one at a time, to show that nothing else needs them: of a copy of the tree it deletes the folder
# internal/NAME and the lines of main.go that name it, builds the program, vets all other packages with their tests, and runs
# the tests of the core. Tests of the whole program are beside main.go and below test/, and need all of it.
#
#   hack/without.sh NAME...
set -euo pipefail

cd "$(dirname "$0")/.."
[[ $# -gt 0 ]] || { echo "hack/without.sh: name capabilities, such as inplace" >&2; exit 2; }
for name in "$@"; do
  [[ $name =~ ^[a-z]+$ && -d internal/$name ]] || { echo "hack/without.sh: there is no internal/$name" >&2; exit 2; }
  copy=$PWD/out/without # the same for all: go test keeps results by path and time
  rm -rf "$copy"
  mkdir -p "$copy"
  git ls-files -z -- . ":!internal/$name" | xargs -0 cp -P --preserve=timestamps --parents -t "$copy"
  main=cmd/capi-proxy-patcher/main.go
  sed -i "/\b$name\.New()/d; /internal\/$name\"/d" "$copy/$main"
  if cmp -s "$main" "$copy/$main"; then
    echo "hack/without.sh: $main has no line of $name" >&2
    exit 1
  fi
  (
    cd "$copy"
    go build -o /dev/null ./cmd/...
    go vet ./internal/...
    go test -vet=off -ldflags=-s ./internal/core/... ./internal/patch/... ./internal/systemd/... >tests.log ||
      { grep -v '^ok ' tests.log; exit 1; }
  )
  rm -rf "$copy"
  echo "without $name: ok"
done
