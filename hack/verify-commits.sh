#!/usr/bin/env bash
# Refuses commits whose subject is not `area: Verb object`, in imperative: areas are packages or folders.
#
# Looks at the commits since this branch left origin/main, or else since the last tag, or else at the last one.
set -euo pipefail

cd "$(dirname "$0")/.."

if base=$(git merge-base origin/main HEAD 2>/dev/null) || base=$(git describe --tags --abbrev=0 2>/dev/null) ||
  base=$(git rev-parse --verify --quiet HEAD~1); then
  form='^[a-zA-Z0-9_./-]+(, [a-zA-Z0-9_./-]+)*: [A-Z][a-z-]+ .*[^.]$'
  vague=' (what|whoever|those that|of before)( |$)'
  bad=$(git log --no-merges --format=%s "$base..HEAD" | while read -r subject; do
    [[ ${#subject} -le 80 && $subject =~ $form && ! $subject =~ $vague ]] || echo "$subject"
  done)
  if [[ -n $bad ]]; then
    echo "subjects that are not \`area: Verb object\` in at most 80 characters, or have a relative clause without a noun:" >&2
    echo "$bad" >&2
    exit 1
  fi
else
  echo "verify-commits: no earlier commit to compare with" >&2
fi
