# Everything that is done with this repository. `make help` lists it.

GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
MODULES := . examples/provider-local

# Tools run at pinned versions and are not dependencies of the module.
BUF           := $(GO) run github.com/bufbuild/buf/cmd/buf@v1.75.0
GOLANGCI_LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK   := $(GO) run golang.org/x/vuln/cmd/govulncheck@latest

.DEFAULT_GOAL := help
.PHONY: help build demo test test-python test-docker test-sandboxd test-gateway test-chaos cover fuzz lint vet generate generate-check bench bench-docker bench-gateway vulncheck clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The guest runs inside containers: a static Linux binary for each architecture,
# which the docker plugin looks for beside itself. Without gRPC's web page of traces
# it is a quarter smaller, and starts the sooner.
GUEST_ARCHS := amd64 arm64
COMMANDS    := $(filter-out ./cmd/berth-guest,$(wildcard ./cmd/*))

build: ## Build berth, the plugins and the guest into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(COMMANDS)
	@set -e; for arch in $(GUEST_ARCHS); do \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -tags grpcnotrace -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth-guest-linux-$$arch ./cmd/berth-guest; done
	cd examples/provider-local && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(abspath $(BIN))/berth-provider-local .

demo: build ## Show the main job on real plugin processes
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/berth-demo ./examples/demo
	$(BIN)/berth-demo

# Most tests wait rather than compute: for processes, timeouts and connections.
CONCURRENCY ?= -p 4 -parallel 4
PACKAGES    ?= ./...
RACE        ?= -race

test: ## Run every test that needs no engine, with the race detector (needs a C compiler)
	@status=0; for m in $(MODULES); do (cd $$m && $(GO) test $(RACE) -timeout 20m $(CONCURRENCY) $(TESTFLAGS) $(PACKAGES)) || status=1; done; exit $$status

test-python: ## Check the example provider in Python (needs python3 with venv, and PyPI)
	@$(GO) test -timeout 20m -tags python $(TESTFLAGS) ./examples/provider-python

# What takes longest begins first. Of a package whose other tests take long, those in
# *_docker_test.go alone are run here: `make test` has run the others.
test-docker: build ## Run the tests that need a Docker engine (test/docker/up starts one; PyPI for one of them)
	@status=0; $(GO) test -timeout 40m -tags docker $(CONCURRENCY) $(TESTFLAGS) ./test/docker/... ./plugins/docker/... ./test/operating ./test/bench/docker ./test/bench/gateway ./test/readme || status=1; \
	tests=$$(sed -n 's/^func \(Test[A-Za-z0-9_]*\).*/\1/p' plugin/sdk/posix/*_docker_test.go | paste -sd '|' -); \
	$(GO) test -timeout 40m -tags docker $(TESTFLAGS) -run "^($$tests)$$" ./plugin/sdk/posix || status=1; exit $$status

test-sandboxd: ## Run the tests that need sandboxd (python3 with venv, PyPI, and a Docker engine)
	@$(GO) test -timeout 60m -tags sandboxd $(TESTFLAGS) ./test/sandboxd/...

# Of the gateway's own packages those that need PostgreSQL alone: `make test` has run
# the others.
test-gateway: ## Run the tests on the gateway (python3 with venv, PyPI, PostgreSQL, and a Docker engine)
	@status=0; $(GO) test -timeout 20m -tags gateway -parallel 4 $(TESTFLAGS) ./test/gateway || status=1; \
	$(GO) test -timeout 20m -tags gateway $(TESTFLAGS) -run '^TestPostgres$$' ./host/gateway/internal/... || status=1; exit $$status

CHAOS ?= 2m
test-chaos: ## Storm six providers for CHAOS (2m) and look for what was lost
	@BERTH_TEST_CHAOS=$(CHAOS) $(GO) test -race -timeout 60m $(TESTFLAGS) ./test/chaos

cover: ## Run the tests and write coverage.html
	$(GO) test -coverpkg=./host/...,./plugin/...,./plugins/...,./shared/... -coverprofile=coverage.out ./...
	$(GO) tool cover -html=coverage.out -o coverage.html
	@$(GO) tool cover -func=coverage.out | tail -n 1

FUZZTIME ?= 30s
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@set -e; $(GO) list ./... | while read -r pkg; do \
	  $(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' | while read -r target; do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; done; done

lint: ## Check style, mistakes and the direction of imports
	@set -e; for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff && $(GOLANGCI_LINT) run -c $(CURDIR)/.golangci.yml ./...); done
	cd shared/wire && $(BUF) lint

SYSTEMS ?= linux darwin windows
vet: ## Vet for every system that we build for
	@set -e; for os in $(SYSTEMS); do for m in $(MODULES); do \
	  echo "GOOS=$$os go vet ./... in $$m"; (cd $$m && GOOS=$$os CGO_ENABLED=0 $(GO) vet ./...); done; done

generate: ## Generate the Go code of the protocols in shared/wire
	cd shared/wire && $(BUF) generate

generate-check: generate ## Fail if the generated code was stale
	git diff --exit-code -- shared/wire/berthv1 shared/wire/guestv1

bench: build ## Measure the figures of docs/performance.md, with their ratios to baselines; DOCS as below
	CGO_ENABLED=0 $(GO) run ./test/bench -bin $(BIN) $(if $(DOCS),-docs $(DOCS))

bench-docker: build ## Measure the docker provider beside the engine itself and pydantic-ai-backend
	@$(GO) run ./test/docker/images
	CGO_ENABLED=0 $(GO) run ./test/bench/docker -bin $(BIN)

bench-gateway: build ## Measure berth serve beside sandboxd, then under load; DOCS=docs/performance.md keeps the figures
	@$(GO) run ./test/docker/images
	CGO_ENABLED=0 $(GO) run ./test/bench/gateway -bin $(BIN) $(if $(DOCS),-docs $(DOCS))

vulncheck: ## Look for known vulnerabilities, where the database can be reached
	$(GOVULNCHECK) ./...

clean: ## Remove what was built
	rm -rf $(BIN) coverage.out coverage.html
