#!/usr/bin/env bash
# Builds the image of the product with ko, for one or more platforms, without a daemon, a registry or a base image, and
# prints its digest. The same commit results in the same bytes, on any machine and at any time, if it is built with the
# same Go. The image is an OCI layout in OUT/image, the bills of materials are in OUT/sbom; both folders are replaced.
# With REGISTRY/NAME:TAG it is also pushed, with the credentials of docker login or the like.
#
#   VERSION=v1.2.3 REVISION=COMMIT CREATED=SECONDS PLATFORMS=linux/amd64,linux/arm64 hack/image/build.sh OUT [REGISTRY/NAME:TAG]
#
# CREATED is the time of the commit, in seconds since 1970. PACKAGE is another program, for tests.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd) push=${2:-}
cd "$(dirname "$0")/../.."

refuse() {
  echo "image: $*" >&2
  exit 2
}

repository=scratch.invalid/image target=(--push=false)
if [[ -n $push ]]; then
  [[ $push =~ ^([^/]*[.:][^/]*|localhost)/.+:[^:/]+$ ]] || refuse "IMAGE=$push: name a registry, a repository and a tag"
  repository=${push%:*} target=(--tags "${push##*:}")
fi

work=$(mktemp -d) layout=out/image.$$ # ko takes the path of a layout for the name of an image: no capital letters
trap 'rm -rf "$work" "$layout"' EXIT
mkdir -p out

# ko needs a base image, and looks for it here before it asks a registry: an empty one for each platform.
base=$work/img
mkdir -p "$base/blobs/sha256"

# blob TYPE [FIELDS] writes standard input as a blob and prints its descriptor.
blob() {
  local digest
  cat >"$work/blob"
  digest=$(sha256sum "$work/blob" | cut -d ' ' -f 1)
  cp "$work/blob" "$base/blobs/sha256/$digest"
  printf '{"mediaType":"application/vnd.oci.image.%s.v1+json","digest":"sha256:%s","size":%d%s}' \
    "$1" "$digest" "$(wc -c <"$work/blob")" "${2:-}"
}

images=
for platform in ${PLATFORMS//,/ }; do
  [[ $platform =~ ^linux/([a-z0-9]+)$ ]] || refuse "PLATFORMS=$PLATFORMS: use linux/amd64,linux/arm64"
  os='"architecture":"'${BASH_REMATCH[1]}'","os":"linux"'
  config=$(blob config <<<"{$os,\"config\":{},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]}}")
  images+=${images:+,}$(blob manifest ",\"platform\":{$os}" <<<"{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":$config,\"layers\":[]}")
done
index=$(blob index <<<"{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[$images]}")
echo "{\"schemaVersion\":2,\"manifests\":[$index,$images]}" >"$base/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$base/oci-layout"
digest=${index#*sha256:}

labels=org.opencontainers.image.title=capi-proxy-patcher,org.opencontainers.image.version=$VERSION
labels+=,org.opencontainers.image.revision=$REVISION,org.opencontainers.image.licenses=Apache-2.0

rm -rf "$out/image" "$out/sbom"
unset GOAMD64 GOARCH GOARM64 GOEXPERIMENT GOFIPS140 GOFLAGS GOOS GOWORK # ko is built for this machine
reference=$(
  KO_CONFIG_PATH=hack/image/ko.yaml KOCACHE=$work KO_DEFAULTBASEIMAGE=scratch.invalid/empty@sha256:${digest%%\"*} \
    TZ=UTC KO_DOCKER_REPO=$repository KO_DATA_DATE_EPOCH=$CREATED SOURCE_DATE_EPOCH=$CREATED \
    go tool -modfile=go.tools.mod ko build --bare "${target[@]}" --oci-layout-path "$layout" --sbom-dir "$out/sbom" \
    --platform "$PLATFORMS" --image-user 65532:65532 --image-label "$labels" --image-annotation "$labels" \
    "${PACKAGE:-./cmd/capi-proxy-patcher}" 2>"$work/log"
) || { cat "$work/log" >&2; exit 1; }
mv "$layout" "$out/image"
find "$out/image" "$out/sbom" -type f -exec chmod 644 {} + # ko gives some files to their owner alone
echo "${reference##*@}"
