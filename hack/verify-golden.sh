#!/usr/bin/env bash
# Refuses a change of golden files without a line in CHANGELOG.md: what they hold is what lands on nodes, and people who
# upgrade have to read about it.
#
# Compares the working tree with the point where this branch left origin/main, or else with the commit before.
# A new golden file is a new promise and needs no line; a changed, renamed or deleted one does.
set -euo pipefail

cd "$(dirname "$0")/.."

if base=$(git merge-base origin/main HEAD 2>/dev/null) || base=$(git rev-parse --verify --quiet HEAD~1); then
  changed=$(git diff --name-only --diff-filter=a "$base" -- internal/patch/testdata internal/offline/render/testdata ':!*/testdata/fuzz/*')
  if [[ -n $changed ]] && git diff --quiet "$base" -- CHANGELOG.md; then
    echo "golden files changed since ${base:0:12}, but CHANGELOG.md did not say why:" >&2
    echo "$changed" >&2
    exit 1
  fi
else
  echo "verify-golden: no earlier commit to compare with" >&2
fi
