#!/usr/bin/env bash
# Refuses a change of golden files that CHANGELOG.md does not explain: what they hold is what lands on nodes, and people who
# upgrade have to read about it.
#
# Compares the working tree with the point where this branch left origin/main, or else with the commit before. A new golden
# file is a new promise and needs no line; a changed, renamed or deleted one does, above the newest version in CHANGELOG.md
# that is released. A heading that ends with (unreleased) is not; as long as there is no other, nobody can upgrade.
set -euo pipefail

cd "$(dirname "$0")/.."

released='^## v[^ ]+$'
unreleased() { sed -E "/$released/,\$d"; }

if ! base=$(git merge-base origin/main HEAD 2>/dev/null) && ! base=$(git rev-parse --verify --quiet HEAD~1); then
  echo "verify-golden: no earlier commit to compare with" >&2
  exit
fi
before=$(git show "$base:CHANGELOG.md")
if ! grep -qE "$released" <<<"$before"; then
  echo "verify-golden: no version is released, so golden files may change" >&2
  exit
fi
changed=$(git diff --name-only --diff-filter=a "$base" -- internal/patch/testdata internal/offline/render/testdata ':!*/testdata/fuzz/*')
if [[ -n $changed && $(unreleased <<<"$before") == "$(unreleased <CHANGELOG.md)" ]]; then
  echo "golden files changed since ${base:0:12}, but CHANGELOG.md does not say why above the newest released version:" >&2
  echo "$changed" >&2
  exit 1
fi
