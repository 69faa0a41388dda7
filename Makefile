# Lockstep. "make help" lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN      := $(CURDIR)/.bin
ADAPTERS := adapter/etcd adapter/postgres adapter/redis adapter/s3 adapter/zookeeper
MODULES  := . $(ADAPTERS) api client server sim cmd examples
VERSION  := $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null || echo unknown)
BUILT    := $(shell git log -1 --format=%ct 2>/dev/null || date +%s)
LDFLAGS  := -X github.com/lockstep-dev/lockstep/cmd/internal/cli.version=$(VERSION) \
            -X github.com/lockstep-dev/lockstep/cmd/internal/cli.builtUnix=$(BUILT)
export PATH := $(BIN):$(PATH)

STEP := scripts/step

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.PHONY: build
build: ## build bin/lockstep, and the programs of examples
	go build -ldflags '$(LDFLAGS)' -o bin/lockstep ./cmd/lockstep
	go build -o bin/ ./examples/pause ./examples/redlock

.PHONY: demo
demo: build ## show the service at work: five nodes, a killed leader, a frozen holder (under 40 s)
	bin/lockstep demo

.PHONY: test
test: ## install what the tests need, then run everything that a change must pass
	@$(STEP) 'install packages' scripts/install-packages
	@$(STEP) 'install tools' $(MAKE) --no-print-directory tools
	@$(STEP) 'format' $(MAKE) --no-print-directory format-check
	@$(STEP) 'generated code' $(MAKE) --no-print-directory generate-check
	@$(STEP) 'vet' $(MAKE) --no-print-directory vet
	@$(STEP) 'staticcheck' $(MAKE) --no-print-directory staticcheck
	@$(STEP) 'tests with the race detector' scripts/test ./cmd/... $(ADAPTERS:%=./%/...) ./server/... ./sim/... ./examples/... ./client/... ./api/... ./... # the longest first
	@$(STEP) 'ZooKeeper faults, without the race detector' $(MAKE) --no-print-directory zookeeper-faults
	@$(STEP) 'build' $(MAKE) --no-print-directory build
	@$(STEP) 'units and alerts' accept/run units alerts
	@$(STEP) 'late writes on real servers' bin/pause --store s3
	@$(STEP) 'simulator' $(MAKE) --no-print-directory sim
	@$(STEP) 'fault tour' scripts/fault-tour

.PHONY: zookeeper-faults
zookeeper-faults: # the two tests of norace_test.go, which explains why; fails if they do not run
	go test -v -run '^(TestServersGoAndComeBack|TestAFollowerThatDiesTakesNoSignOfLifeWithIt)$$' ./adapter/zookeeper/zklock | \
	awk '{ print } /^--- PASS/ { n++ } END { exit n != 2 }'

.PHONY: sim
sim: build ## run the simulator's seeds (SEEDS=60 SEED=1)
	bin/lockstep sim --seeds $${SEEDS:-60} --seed $${SEED:-1} -o json

.PHONY: mutants
mutants: ## plant eleven bugs, one by one, and check that each is found within 2 minutes
	sim/mutants.sh

.PHONY: docs
docs: build ## run every command in the documentation, except the slow ones (accept/run docs runs those too)
	QUICK=1 accept/run docs

.PHONY: accept
accept: build ## run the acceptance scripts (ONLY=name runs one)
	accept/run $${ONLY:-}

.PHONY: bench
bench: build ## run the benchmarks, and bench against five server processes
	go test -run '^$$' -bench . -benchmem ./server/machine/
	accept/run bench

.PHONY: fuzz
fuzz: ## run each fuzz test for FUZZTIME (10s)
	scripts/fuzz $${FUZZTIME:-10s}

.PHONY: format
format: ## gofmt all files
	gofmt -w $$(git ls-files '*.go')

.PHONY: format-check
format-check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make format: $$unformatted"; exit 1; fi

.PHONY: generate
generate: tools ## regenerate the generated code
	scripts/generate

.PHONY: generate-check
generate-check: ## fail if the generated code does not match the sources
	scripts/generate-check

.PHONY: vet
vet: ## go vet, also for the other systems on which a client or the tool may run
	go vet work
	for os in darwin windows; do GOOS=$$os go vet ./... $(ADAPTERS:%=./%/...) ./client/... ./cmd/internal/... ; done

.PHONY: staticcheck
staticcheck: tools ## run staticcheck on every module
	for m in $(MODULES); do (cd $$m && staticcheck ./...); done

.PHONY: lint
lint: ## run golangci-lint, manually: the first run takes minutes
	@scripts/install-tools lint
	for m in $(MODULES); do (cd $$m && golangci-lint run ./...); done

.PHONY: tools
tools: ## install the pinned tools, and the servers that the tests need, into .bin
	@scripts/install-tools
	@scripts/install-etcd
	@scripts/install-versitygw
	@scripts/install-promtool

.PHONY: clean
clean: ## remove the build results
	rm -rf bin .bin
