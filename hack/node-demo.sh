#!/usr/bin/env bash
# Makes a real Kubernetes cluster of machines behind proxies, reports what it does, and shows which proxy served which image.
#
#   hack/node-demo.sh
#
# It is the test test/node/kubernetes, told to a visitor; its log is .demo/node.log. It needs root and Linux.
set -euo pipefail

cd "$(dirname "$0")/.."

mkdir -p .demo
log=$PWD/.demo/node.log
echo "==> building, or finding in the cache, what nodes are made of; the first time takes minutes"
for script in node-rootfs node-squid node-kube; do
  if ! reason=$("hack/$script.sh" 2>&1 >/dev/null); then
    echo "demo: $(tail -n 1 <<<"$reason")" >&2
    exit 1
  fi
done
go test -c -tags node -o bin/demo-node ./test/node/kubernetes

# A proxy of this machine must not decide about the proxies of the nodes.
unset HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
cd test/node/kubernetes
start=$SECONDS
# What it tells goes through a pipe of its own, apart from the log of the test.
if ! CAPI_PROXY_PATCHER_NODE_PROGRESS=/dev/fd/3 "$OLDPWD/bin/demo-node" -test.v -test.timeout=15m \
  -test.run '^TestKubernetes$/^(what|a management cluster|cluster|nothing)' 3>&1 >"$log" 2>&1 | cat; then
  echo "demo: it did not work; see $log" >&2
  exit 1
fi
if grep -q -e '--- SKIP' "$log"; then
  echo "demo: $(sed -n 's/^ *[a-z_]*\.go:[0-9]*: //p' "$log" | head -n 1)" >&2
  exit 1
fi
echo "Done in $((SECONDS - start)) s."
