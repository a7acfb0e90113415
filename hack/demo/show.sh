#!/usr/bin/env bash
# Applies a Cluster as users do, and prints what becomes of it. hack/demo runs it with the program, with KUBECONFIG set and
# kubectl in PATH.
set -euo pipefail
cd "$(dirname "$0")"

step() { echo "==> $*"; }
title() { printf '\n%s\n%s\n' "$*" "${*//?/-}"; }
demo() { kubectl -n demo "$@"; }
apply() {
  step "applying hack/demo/$1"
  demo apply --server-side -f "$1" >/dev/null
}

# specs prints those of bootstrap objects, with sorted keys: of the manifest, or of what the API server has.
written() { awk -v RS='---\n' "/kind: $1\n/" cluster.yaml | kubectl create --dry-run=client --validate=false -o yaml -f - | sed -n '/^spec:/,$p'; }
stored() { demo get "$1" "$2" -o yaml | sed -n '/^spec:/,/^status:/{/^status:/!p}'; }
changed() { title "What changed in $1 $2"; ! diff -U 3 --label before --label after <(written "$1") <(stored "$1" "$2"); }

# lines indents text, without the user and password of URLs.
lines() { sed -E 's#://[^@/"]+@#://xxxxx@#g; s/^/    /'; }

kubectl create namespace demo >/dev/null
apply proxy-secret.yaml
apply cluster.yaml
condition=capi-proxy-patcher.io/ProxyConfigured
step "waiting for condition $condition"
demo wait --for=condition=$condition cluster/my-cluster --timeout=30s >/dev/null
echo
demo get cluster my-cluster -o jsonpath='{range .status.conditions[?(@.type=="'$condition'")]}{.type}: {.status} ({.reason}){"\n"}{.message}{"\n"}{end}' | lines
changed KubeadmControlPlane my-cluster-control-plane
changed KubeadmConfigTemplate my-cluster-md-0

title "What a node gets"
# shellcheck disable=SC2016 # a template of Go
demo get kubeadmcontrolplane/my-cluster-control-plane secret/my-cluster-proxy-files -o go-template='
{{- $secret := (index .items 1).data}}{{with (index .items 0).spec.kubeadmConfigSpec}}{{range .files}}
@ {{.path}} ({{.permissions}})
{{with .contentFrom}}{{$text := index $secret .secret.key | base64decode}}
  {{- if eq .secret.key "setup.sh"}}{{printf "%.42s..." $text}}{{else}}{{$text}}{{end}}{{else}}{{.content}}{{end}}{{end}}

@ Commands before kubeadm
{{range .preKubeadmCommands}}{{.}}
{{end}}{{end}}' | lines | sed -E 's/^    (@ |$)//'

title "The same manifest again"
generations() { demo get kubeadmcontrolplane,kubeadmconfigtemplate -o jsonpath='{range .items[*]}{.kind} {.metadata.name}: generation {.metadata.generation}{"\n"}{end}'; }
before=$(generations)
step "waiting until the API server asks the webhooks: kubectl diff --server-side finds nothing"
SECONDS=0
until demo diff --server-side -f cluster.yaml >/dev/null 2>&1; do
  ((SECONDS < 30)) || { echo "applying the manifest again would change the Cluster" >&2; exit 1; }
done
apply cluster.yaml
generations | lines
[[ $(generations) == "$before" ]] || { echo "applying the manifest again changed a spec; it was $before" >&2; exit 1; }

# The manager is a process beside an API server, which runs no Pods: check names what the demo has not, and nothing else.
title "What check says"
said=$("$1" check --cluster demo/my-cluster) || true
printf '\n%s\n\n' "$said"
[[ $said == *"failed (cert-manager, deployments, certificates), "* ]] || { echo "check says something else" >&2; exit 1; }
echo "The demo has no cert-manager, and its manager is no Deployment: check names both."
