# Recipes are short; what is longer is a script in hack/. Continuous integration runs these targets and nothing else.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

MODULE := github.com/capi-proxy-patcher/capi-proxy-patcher
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X $(MODULE)/internal/core/contract.release=$(VERSION)

# Programs, tools and tests are compiled alike, so that an empty build cache is filled once.
GO_ENV := $(shell env -u CGO_ENABLED go env CGO_ENABLED GOOS GOARCH)
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

TOOL := go tool -modfile='$(CURDIR)/go.tools.mod'
# The tests that compare tables of docs/ with the program.
TABLES = go test $(TEST_FLAGS) -count=1 -p 1 -run '^TestTables_' $$(grep -rl --include='*_test.go' 'tables.Table{' internal cmd | xargs -n 1 dirname | sort -u | sed 's|^|./|')
GENERATE := $(TOOL) controller-gen rbac:roleName=manager-role webhook paths=./internal/...

# Tests that need a cluster, a node or time of their own are below test/, all others are unit tests.
UNIT_PACKAGES = $$(go list ./... | grep -v '/test/')
# Packages without state that goroutines share: rules of this module, commands, packages that compute, reconcilers and
# webhooks. The race detector is not used for them. Tests of the other packages call those that compute from many goroutines,
# under the race detector.
SEQUENTIAL := /(internal|cmd/.*|hack|hack/.*|internal/(cli/?.*|offline/.*|publish/?.*|fleet/.*|explain/?.*|patch|systemd|inplace/node|core/(contract|controller|finding|infrastructure|noproxy|plan|settings|webhook)))$$
# Packages that take longest begin.
ENVTEST_PACKAGES = $$(go list ./test/delivery ./test/faults ./test/install ./test/envtest ./test/... | grep -vE '/test/(e2e|node)(/|$$)')

# make lint has what go vet finds, and nobody debugs these programs.
TEST_FLAGS := -vet=off -ldflags=-s
# The race detector needs a C compiler. Go's own linker links it in half the time, on platforms where it can.
RACE := $(if $(findstring 1 linux amd64,$(GO_ENV)),-race '-ldflags=-s -linkmode=internal',$(if $(filter 1,$(GO_ENV)),-race))
FUZZ_TIME ?= 30s

# A module of its own, so that the product does not depend on what it needs.
MODULES := test/engines

# A proxy of the developer's machine must not decide about a test of proxies, nor flags of this make about one that a test
# runs. Modules are downloaded before, with the proxy.
WITHOUT_PROXY := env -u MAKEFLAGS $(foreach name,HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy,-u $(name))
FETCH_MODULES = $(TOOL) gotestsum --version >/dev/null; $(TOOL) ko version >/dev/null; for module in . $(MODULES); do go list -C $$module -e -deps -test ./... >/dev/null; done
# The processor bounds API servers and what runs beside them, memory does not: they collect garbage less often.
LESS_GC := GOGC=400
# Each run leaves its results in a file of its own, and make test begins with none.
RESULTS := $(CURDIR)/out/tests
GOTESTSUM = $(TOOL) gotestsum --format=pkgname --format-icons=text --jsonfile-timing-events="$(RESULTS)/$$(date +%s%N)"
# Tests with processes of others are run once more if at most two failed. The sum names each that needed it: it has a bug to find.
ONCE_MORE = --rerun-fails=1 --rerun-fails-max-failures=2 --rerun-fails-run-root-test

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: all
all: generate test build ## Generate, lint, test and build.

.PHONY: build
build: ## Build bin/capi-proxy-patcher, a static binary.
	go build -ldflags "$(LDFLAGS) -X $(MODULE)/internal/core/contract.commit=$(REVISION)" -o bin/capi-proxy-patcher ./cmd/capi-proxy-patcher

# What image and release say of themselves; nothing else of this machine or day is in them. PUSH=1 needs an IMAGE with a
# registry and a tag.
PLATFORMS ?= linux/amd64,linux/arm64
REVISION = $$(git rev-parse HEAD 2>/dev/null)$$(git diff --quiet HEAD 2>/dev/null || echo -dirty)
COMMITTED = $$(git log -1 --format=%ct 2>/dev/null || echo 0)
BUILD_IMAGE = VERSION='$(VERSION)' REVISION="$(REVISION)" CREATED="$(COMMITTED)" PLATFORMS='$(PLATFORMS)' hack/image/build.sh

# The command line for users, on these platforms, and where krew will find it.
PROGRAMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DOWNLOADS ?= https://$(MODULE)/releases/download/$(VERSION)
BUILD_PROGRAM = env -u GOEXPERIMENT CGO_ENABLED=0 GOFLAGS= GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOWORK=off go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS) -X $(MODULE)/internal/core/contract.commit=$(REVISION)"

# Where a release is written, and the repository that its manifests name.
RELEASE_OUT ?= $(CURDIR)/out/release
RELEASE_FOLDER = $(RELEASE_OUT)/runtime-extension-capi-proxy-patcher/$(VERSION)
# Of kustomize, which is known (docs/development/adr/0011).
WITHOUT_WARNING = 2> >(grep -v "'vars' is deprecated" >&2)
REGISTRY ?= registry.example.com/capi-proxy-patcher

.PHONY: image
image: ## Build the image for PLATFORMS into out/image, an OCI layout, and print its digest; PUSH=1 IMAGE=registry/name:tag pushes it.
	@[[ -z '$(PUSH)' || -n '$(strip $(IMAGE))' ]] || { echo "make image: PUSH=1 needs an IMAGE=registry/name:tag" >&2; exit 2; }
	@$(BUILD_IMAGE) out $(if $(PUSH),'$(IMAGE)')

.PHONY: release
release: ## Write the folder of release VERSION into out/release, for clusterctl: components, chart, programs, image, SBOM, checksums.
	@[[ '$(VERSION)' == v[0-9]*.[0-9]*.[0-9]* ]] || { echo "make release: VERSION is $(VERSION); use one like VERSION=v1.2.3" >&2; exit 2; }
	@go run ./hack/release -check -version '$(VERSION)'
	@echo "==> image for $(PLATFORMS), and its bills of materials"; $(BUILD_IMAGE) '$(RELEASE_OUT)' >/dev/null
	@rm -rf '$(RELEASE_OUT)/programs'; for platform in $(PROGRAMS); do echo "==> program for $$platform"; \
	GOOS=$${platform%/*} GOARCH=$${platform#*/} $(BUILD_PROGRAM) -o "$(RELEASE_OUT)/programs/$${platform/\//-}/" ./cmd/capi-proxy-patcher; cp LICENSE "$(RELEASE_OUT)/programs/$${platform/\//-}/"; done
	@echo "==> licences of its modules"; log='$(RELEASE_OUT)/licences.log'; program=$$($(TOOL) -n go-licenses); \
	GOOS=linux "$$program" report ./cmd/capi-proxy-patcher --template hack/release/licences.tpl >'$(RELEASE_OUT)/licences.txt' 2>"$$log" || { cat "$$log" >&2; exit 1; }
	@echo "==> chart"; go run ./hack/chart -version '$(VERSION)' -image '$(REGISTRY)/capi-proxy-patcher' -out '$(RELEASE_OUT)/chart/capi-proxy-patcher' $(WITHOUT_WARNING)
	@echo "==> $(RELEASE_FOLDER)"; go run ./hack/release -version '$(VERSION)' -image '$(REGISTRY)/capi-proxy-patcher' -downloads '$(DOWNLOADS)' -out '$(RELEASE_OUT)' $(WITHOUT_WARNING)
	@rm -rf '$(RELEASE_OUT)'/{image,sbom,programs,chart,licences.txt,licences.log}

.PHONY: release-page
release-page: ## Write the files of the release page of VERSION into out/release/page, and its text into out/release/notes.md, after make release.
	@go run ./hack/release -page -version '$(VERSION)' -out '$(RELEASE_OUT)'

.PHONY: chart
chart: ## Write the Helm chart of VERSION, with an image in REGISTRY, into out/chart.
	@go run ./hack/chart -version '$(VERSION)' -image '$(REGISTRY)/capi-proxy-patcher' -out '$(CURDIR)/out/chart/capi-proxy-patcher' $(WITHOUT_WARNING)

.PHONY: generate
generate: ## Write roles and webhook configurations from the markers in internal/, and tables of docs/ from the program.
	$(GENERATE) output:rbac:dir=config/rbac output:webhook:dir=config/webhook
	@$(TABLES) -update-docs >/dev/null || $(TABLES)

.PHONY: manifests
manifests: ## Write out/components.yaml, everything that an installation needs.
	@mkdir -p out
	kubectl=$$(command -v kubectl) || kubectl=$$(hack/kube-assets.sh)/kubectl; \
	"$$kubectl" kustomize config/default >out/components.yaml

.PHONY: demo
demo: build ## Show the main job on a management cluster of its own; KEEP=1 leaves it running until Ctrl-C or make demo-stop, NODE=1 boots real nodes instead (root).
ifeq ($(NODE),1)
	@hack/node-demo.sh
else
	@go build -o bin/demo ./hack/demo
	@assets=$$(hack/kube-assets.sh); KUBEBUILDER_ASSETS="$$assets" bin/demo $(if $(KEEP),-keep)
endif

.PHONY: demo-stop
demo-stop: ## End the demo that make demo KEEP=1 has left running, from another terminal.
	@go run ./hack/demo -stop

.PHONY: clean
clean: ## Remove what make has built here. The programs of hack/kube-assets.sh stay in their cache.
	rm -rf bin out .demo

##@ Check

.PHONY: fmt
fmt: ## Format the code.
	$(TOOL) golangci-lint fmt

.PHONY: lint
lint: ## Lint code and tests, with go vet's analyzers too.
	status=0; for module in . $(MODULES); do (cd $$module && $(TOOL) golangci-lint run --config '$(CURDIR)/.golangci.yml') || status=1; done; exit $$status

.PHONY: lint-fix
lint-fix: ## Lint, and fix what can be fixed mechanically.
	$(TOOL) golangci-lint run --fix

.PHONY: verify
verify: verify-help verify-paths verify-actions verify-modules verify-gen verify-golden verify-commits verify-licenses verify-vuln ## Check that what is generated or written down twice agrees, and dependencies.

.PHONY: without
without: ## Build without each capability, and run the tests of the core (NAMES=inplace for one).
	hack/without.sh $(or $(NAMES),check explain fleet inplace offline publish)

.PHONY: verify-help
verify-help: ## Check that make help lists every target.
	@hack/verify-help.sh

.PHONY: verify-paths
verify-paths: ## Check that every path is one that the go command accepts in a module, and that people can type.
	@! git ls-files -z | LC_ALL=C grep -zvE '^[A-Za-z0-9._/@+-]+$$' | tr '\0' '\n' | grep . || \
	{ echo "verify-paths: rename or remove the paths above; use A-Z a-z 0-9 . _ / @ + -" >&2; exit 1; }

.PHONY: verify-actions
verify-actions: ## Check the workflows of .github with actionlint, and that actions are pinned by digest.
	$(TOOL) actionlint
	@! grep -n 'uses: ' .github/workflows/*.yaml | grep -vE '@[0-9a-f]{40} # v[0-9.]+$$' || { echo "verify-actions: pin the actions above as NAME@DIGEST # VERSION" >&2; exit 1; }

.PHONY: verify-modules
verify-modules: ## Check that go.mod and go.sum are tidy.
	go mod tidy -diff
	for module in $(MODULES) hack/kube hack/kube/cluster-api-*; do go -C $$module mod tidy -diff; done

.PHONY: verify-gen
verify-gen: ## Check that make generate changes nothing.
	@rm -rf out/generated; mkdir -p out/generated
	$(GENERATE) output:rbac:dir=out/generated output:webhook:dir=out/generated
	diff -u config/rbac/role.yaml out/generated/role.yaml
	diff -u config/webhook/manifests.yaml out/generated/manifests.yaml
	$(TABLES)

.PHONY: verify-golden
verify-golden: ## Check that changed golden files come with a line in CHANGELOG.md.
	hack/verify-golden.sh

.PHONY: verify-commits
verify-commits: ## Check that subjects of commits are `area: Verb object`.
	@hack/verify-commits.sh

.PHONY: verify-licenses
verify-licenses: ## Check that the licences of all linked modules are allowed.
	@$(TOOL) go-licenses check ./cmd/... --allowed_licenses=Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT 2>&1 | sed '/non-Go code/d; \|^/|d'

.PHONY: verify-vuln
verify-vuln: ## Look for known vulnerabilities; says so where the database cannot be reached.
	@hack/verify-vuln.sh

##@ Test

# Tests with an API server wait much of their time, so lint and unit tests run beside them with a lower priority.
.PHONY: test
test: ## Lint and run all tests; the last line is their sum.
	@rm -rf '$(RESULTS)'; mkdir -p out; status=0; \
	$(MAKE) --no-print-directory test-envtest >out/envtest.log 2>&1 & envtest=$$!; \
	for target in lint test-unit; do nice -n 3 $(MAKE) --no-print-directory $$target || status=1; done; \
	wait $$envtest || status=1; cat out/envtest.log; \
	$(MAKE) --no-print-directory test-summary; exit $$status

.PHONY: test-unit
test-unit: ## Run the tests that need nothing but this machine, seeds of fuzz targets included.
	@mkdir -p '$(RESULTS)'; $(FETCH_MODULES); echo "== unit tests"
	@status=0; $(WITHOUT_PROXY) $(GOTESTSUM) -- $(TEST_FLAGS) -shuffle=on $$(grep -E '$(SEQUENTIAL)' <<<"$(UNIT_PACKAGES)") || status=1; \
	$(WITHOUT_PROXY) $(if $(RACE),CGO_ENABLED=1) $(GOTESTSUM) -- $(TEST_FLAGS) $(RACE) -shuffle=on $$(grep -vE '$(SEQUENTIAL)' <<<"$(UNIT_PACKAGES)") || status=1; \
	(cd test/engines && $(WITHOUT_PROXY) $(GOTESTSUM) -- $(TEST_FLAGS) -count=1 -shuffle=on $$(go list ./... | grep -v /charts)) || status=1; exit $$status

.PHONY: test-envtest
test-envtest: ## Run the tests that need an API server.
	@mkdir -p '$(RESULTS)'; $(FETCH_MODULES); echo "== tests with an API server"
	@assets=$$(hack/kube-assets.sh); hack/kube/build.sh "$$assets" clusterctl kube-controller-manager || true; status=0; \
	$(WITHOUT_PROXY) $(LESS_GC) KUBEBUILDER_ASSETS="$$assets" $(GOTESTSUM) $(ONCE_MORE) --packages="$(ENVTEST_PACKAGES)" -- $(TEST_FLAGS) -shuffle=on -p 2 -parallel 8 -timeout 25m || status=1; \
	(cd test/engines && $(WITHOUT_PROXY) $(LESS_GC) KUBEBUILDER_ASSETS="$$assets" $(GOTESTSUM) $(ONCE_MORE) --packages=./charts -- $(TEST_FLAGS) -count=1) || status=1; \
	exit $$status

MODEL_STEPS ?= 10000000
MODEL_SEED ?= 1
.PHONY: test-model
test-model: ## Run MODEL_STEPS random operations against the product and a model of it, from MODEL_SEED on.
	$(WITHOUT_PROXY) go test $(TEST_FLAGS) -count=1 -timeout 24h -run '^TestModel_Of[^C]|^TestModel_OfController' ./internal/core/plan ./test/model -args -model.steps=$(MODEL_STEPS) -model.seed=$(MODEL_SEED)
	$(WITHOUT_PROXY) go test $(TEST_FLAGS) -count=1 -timeout 24h -run '^TestModel_OfCrashes' ./test/model -args -model.steps=$$(($(MODEL_STEPS) / 1000)) -model.seed=$(MODEL_SEED)

.PHONY: test-node
test-node: ## Boot real nodes, with kubeadm too, behind real proxies. Needs root and Linux; says so where it cannot run.
	@mkdir -p '$(RESULTS)'; rm -f out/node-report.txt; $(FETCH_MODULES); echo "== tests on booted nodes"
	@for script in rootfs ignition squid kube; do hack/node-$$script.sh >/dev/null || true; done
	@status=0; $(WITHOUT_PROXY) $(LESS_GC) CAPI_PROXY_PATCHER_NODE_REPORT="$(CURDIR)/out/node-report.txt" \
	$(GOTESTSUM) $(ONCE_MORE) --packages=./test/node/... -- $(TEST_FLAGS) -tags node -count=1 -p 1 -timeout 75m || status=$$?; \
	[[ ! -e out/node-report.txt ]] || cat out/node-report.txt; exit $$status

# What make test-e2e runs: all scenarios.
E2E_TESTS := ./test/e2e/...
E2E_RUN :=
E2E_FLAGS :=
E2E_PROGRAMS := kube-controller-manager clusterctl
CAPI_PROGRAMS := capi-core capi-bootstrap-kubeadm capi-controlplane-kubeadm

# The minor version of Cluster API, as hack/kube/cluster-api.sh knows it, such as v1.13 or latest; that of go.mod if it is
# empty. The upgrade of Cluster API begins with CAPI_PREVIOUS.
CAPI ?=
CAPI_PREVIOUS := v1.13

# A wait that hangs is reported shortly before the end.
E2E_TIMEOUT := 75m

.PHONY: test-e2e
test-e2e: ## Run the product on a real management cluster of Cluster API. Needs Linux and root or user namespaces; says so where it cannot run.
	@mkdir -p '$(RESULTS)'; rm -rf out/e2e; $(FETCH_MODULES); echo "== tests on a management cluster"
	@$(if $(filter latest,$(CAPI)),hack/kube/latest.sh;) \
	assets=$$(hack/kube-assets.sh); hack/kube/build.sh "$$assets" $(E2E_PROGRAMS); \
	for minor in '$(CAPI)' $(CAPI_PREVIOUS); do CAPI="$$minor" hack/kube/build.sh "$$assets" $(CAPI_PROGRAMS); done; \
	status=0; $(WITHOUT_PROXY) $(LESS_GC) KUBEBUILDER_ASSETS="$$assets" \
	CAPI_PROXY_PATCHER_E2E_CLUSTER_API='$(CAPI)' CAPI_PROXY_PATCHER_E2E_CLUSTER_API_PREVIOUS='$(CAPI_PREVIOUS)' \
	$(GOTESTSUM) $(ONCE_MORE) --packages=$(E2E_TESTS) -- $(TEST_FLAGS) -tags e2e -count=1 -timeout $(E2E_TIMEOUT) $(if $(E2E_RUN),-run '$(E2E_RUN)') $(E2E_FLAGS) || status=$$?; \
	[[ ! -e out/e2e/figures.txt ]] || cat out/e2e/figures.txt; exit $$status

# They touch most of what Cluster API serves: admission, a rollout, hooks, and entries that are taken back.
E2E_SHORT := ^TestNewCluster$$$$/ignition|^(TestLabelOnARunningCluster|TestLabelRemoved|TestClusterClass|TestMachinePool|TestClientOfTheOldAPIVersion)$$$$

.PHONY: test-e2e-previous
test-e2e-previous: ## Run the scenarios that touch most of Cluster API on the older supported minor version; make test-e2e CAPI=v1.13 runs all.
	@$(MAKE) --no-print-directory test-e2e CAPI=$(CAPI_PREVIOUS) E2E_TESTS=./test/e2e E2E_RUN='$(E2E_SHORT)'

.PHONY: programs
programs: ## Build the programs that test-node and test-e2e run and that are not in the cache; both do that themselves too.
	@for script in rootfs ignition squid kube; do hack/node-$$script.sh >/dev/null || true; done
	@assets=$$(hack/kube-assets.sh); hack/kube/build.sh "$$assets" $(E2E_PROGRAMS); \
	for minor in '' $(CAPI_PREVIOUS); do CAPI="$$minor" hack/kube/build.sh "$$assets" $(CAPI_PROGRAMS); done

.PHONY: test-storm
test-storm: ## Run the storm of make test-e2e with 100 clusters at once instead of 12.
	@$(MAKE) --no-print-directory test-e2e E2E_TESTS=./test/e2e E2E_RUN=TestStorm E2E_FLAGS=-clusters=100

.PHONY: test-summary
test-summary: ## Print the sum of the tests that the last make test ran.
	@awk -f hack/test-summary.awk /dev/null $(wildcard out/tests/*)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZ_TIME (30s).
	@$(FETCH_MODULES)
	$(WITHOUT_PROXY) hack/fuzz.sh $(FUZZ_TIME)

# What compares figures with the bounds of docs/development/performance.md. Seconds have bounds with all Clusters only.
CLUSTERS ?= 1000
.PHONY: bench-scale
bench-scale: build ## Measure with CLUSTERS (1000) Clusters on an API server of its own, and hooks and render, against their bounds.
	@assets=$$(hack/kube-assets.sh); go build -o bin/load ./hack/load; status=0; \
	$(WITHOUT_PROXY) KUBEBUILDER_ASSETS="$$assets" bin/load -clusters $(CLUSTERS) || status=1; \
	go test $(TEST_FLAGS) -p 1 -run '^$$' -bench '^Benchmark(GeneratePatches|Render)$$' $(if $(filter-out 1000,$(CLUSTERS)),-short) ./internal/core/hooks ./hack/load || status=1; exit $$status

.PHONY: bench-check
bench-check: ## The same with 60 Clusters, which takes two minutes.
	@$(MAKE) --no-print-directory bench-scale CLUSTERS=60

.PHONY: cover
cover: ## Write out/cover.html and print the coverage of the unit tests.
	@mkdir -p out; $(FETCH_MODULES)
	$(WITHOUT_PROXY) go test -coverprofile=out/cover.out ./internal/...
	go tool cover -html=out/cover.out -o out/cover.html
	go tool cover -func=out/cover.out | tail -n 1

.PHONY: golden-update
golden-update: ## Rewrite golden files; a change of an existing one is a change of what lands on nodes.
	go test $$(grep -rl --include='*_test.go' 'test/golden"' internal | xargs -n 1 dirname | sort -u | sed 's|^|./|') -update
