#!/usr/bin/env bash
# Runs every fuzz target of the packages below internal, one after the other, each for the given time.
#
#   hack/fuzz.sh 30s
#
# An input is made smaller in few steps: where coverage differs between runs, Go would take all the time for that.
set -euo pipefail

cd "$(dirname "$0")/.."

folders=$(grep -rl --include='*_test.go' '^func Fuzz' internal | xargs -n 1 dirname | sort -u)
for folder in $folders; do
  listed=$(go test -list '^Fuzz' "./$folder")
  for target in $(grep '^Fuzz' <<<"$listed"); do
    echo "== ./$folder $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 20x "./$folder"
  done
done
