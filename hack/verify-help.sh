#!/usr/bin/env bash
# Fails if make help leaves out a target of the Makefile.
set -euo pipefail

cd "$(dirname "$0")/.."
targets=$(sed -n 's/^\.PHONY: *//p' Makefile | tr ' ' '\n' | sort)
listed=$(make --no-print-directory help | sed -n 's/^  \([^ ]*\) .*/\1/p' | sort)
if ! diff <(echo "$targets") <(echo "$listed") >&2; then
  echo "make help does not list the targets of the Makefile: < is missing, > is not .PHONY; give each a text after ##" >&2
  exit 1
fi
