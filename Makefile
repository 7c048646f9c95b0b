# SPDX-License-Identifier: Apache-2.0
#
# culvert: `make help` lists the targets. Everything that is not Go comes from Debian packages, which
# the targets install when they are missing (test/install-deps.sh).

SHELL := /bin/bash
.DEFAULT_GOAL := help

GO ?= go
DESTDIR ?=
CNI_BIN_DIR ?= /opt/cni/bin
PREFIX ?= /usr/local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Tests that fill a limit need the processors to themselves: one package at a time. What the kernel does is
# not in the cache of results: run them every time.
TEST_FLAGS ?= -count=1 -p 1 -timeout 25m

# QUICK=1: three minutes instead of half an hour, rough, and nothing below docs changes. For flags see docs/bench.md.
QUICK ?=
BENCH_FLAGS ?=

# Static binaries: a CNI plugin runs in whatever root filesystem the node has.
export CGO_ENABLED := 0
# Debian gives users no sbin, and root has it only in a login shell.
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin

BUILD := $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
PROGRAMS := culvert culvert-ipam culvertctl culvertd
# What the tests and the demo put beside culvert: versions are those of go.mod's tool lines.
REF := github.com/containernetworking/plugins/plugins
REF_PLUGINS := $(addprefix $(REF)/,ipam/host-local ipam/static main/bridge main/loopback main/ptp \
	meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning)
CNITOOL := github.com/containernetworking/cni/cnitool
GOLANGCI := $(GO) tool -modfile=test/tools/golangci.mod golangci-lint
C_FILES = bpf/datapath.c $(wildcard bpf/lib/*.h)

.PHONY: help deps build ref generate test upgrade-test test-kernels test-containerd test-kubernetes test-faults bench-cluster test-kind soak crash bench limits fuzz demo lint install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## install the Debian packages that the demo and the tests need (quiet when all are there)
	@test/install-deps.sh base

build: ## build bin/culvert, bin/culvert-ipam, bin/culvertctl and bin/culvertd
	$(BUILD) -o bin/ $(addprefix ./cmd/,$(PROGRAMS))

ref: ## build what tests and demo put beside culvert: reference plugins and cnitool, other releases of it
	$(GO) build -o bin/ref/ $(CNITOOL) $(REF_PLUGINS) ./test/demo/who ./test/routed ./cmd/internal/linknode
	test/variant/build.sh bin/variant

generate: ## compile the BPF objects anew with clang-19 and write their Go types; manual pages; the objects of the Kubernetes API
	@test/install-deps.sh generate
	$(GO) generate ./bpf ./cmd/culvertctl ./cmd/internal/api

test: deps build ref ## unit, packet and namespace tests (root)
	@[ "$$(id -u)" = 0 ] || { echo "make test: the namespace tests need root" >&2; exit 1; }
	test/bpffs.sh $(GO) test $(TEST_FLAGS) ./...

test-kernels: build ref ## packet, loader, namespace and limit tests under kernels 6.1, 6.12, 6.18 and 7 in qemu (root)
	@test/install-deps.sh base vm
	test/lab/test-kernels.sh

upgrade-test: build ref ## a hundred replacements of all programs under traffic; another layout, forward and back (root)
	CULVERT_UPGRADE=full test/bpffs.sh $(GO) test -count=1 -timeout 40m -v -run 'TestPrivilegedS4Upgrade' ./test/e2e

test-containerd: build ref ## pods by CRI through real containerds, 2.x and Debian's 1.6
	@test/install-deps.sh base runtime
	test/containerd/run.sh

test-kubernetes: build ref ## Kubernetes' end-to-end tests on a cluster, kube-proxy by iptables and nftables (root)
	@test/install-deps.sh base runtime kubernetes
	test/kubernetes/run.sh

test-faults: build ref ## nodes rebooted, agents killed, API server away, ranges moved: what pods lose; writes docs/kubernetes-faults.md (root)
	@test/install-deps.sh base runtime kubernetes
	test/kubernetes/faults.sh

bench-cluster: build ref ## 100 pods a node at once, VXLAN between nodes, beside the reference plugins; writes docs/bench-cluster.md (root; a quiet machine)
	@test/install-deps.sh base runtime kubernetes
	test/kubernetes/bench.sh

test-kind: build ref ## a kind cluster of three nodes whose only network is "kubectl apply -k deploy/" (docker, or root)
	@test/install-deps.sh base
	test/kind/run.sh

soak: deps build ref ## random verbs, traffic and kills over 64 pods for half an hour, or SOAK_TIME (root)
	SOAK_TIME=$${SOAK_TIME:-30m} test/bpffs.sh $(GO) test -count=1 -timeout 24h -v -run TestPrivilegedSoak ./test/soak

crash: deps build ref ## kill each verb after each of its effects and at 200 random moments; locks, full tables, lost pins (root)
	CULVERT_CRASH=full test/bpffs.sh $(GO) test -count=1 -timeout 60m -v ./test/crash

bench: deps build ref ## culvert beside the reference plugins: all bars, into docs/bench; QUICK=1 in three minutes (root; a quiet machine)
	$(GO) build -o bin/bench/bench ./test/bench
	test/bpffs.sh bin/bench/bench -version $(VERSION) $(if $(QUICK),-short,-out docs/bench -doc docs/bench.md) $(BENCH_FLAGS)

limits: deps build ref ## what limits hold, on this kernel and in qemu; writes docs/limits.md (root; a quiet machine, an hour)
	@test/install-deps.sh vm
	test/lab/limits.sh

fuzz: ## random packets, the datapath against its model: ten million; then Go's fuzzer, FUZZ_TIME (1m) for each target (root)
	CULVERT_FUZZ_SEED=$${CULVERT_FUZZ_SEED:-$$RANDOM$$RANDOM} CULVERT_FUZZ_PACKETS=$${CULVERT_FUZZ_PACKETS:-10000000} \
		test/bpffs.sh $(GO) test -count=1 -timeout 60m -v -run 'TestPrivilegedModel$$' ./bpf
	test/bpffs.sh test/fuzz.sh

demo: ## one node, two pods, a hostPort, a limit and the maps, shown step by step (root)
	@test/demo.sh

lint: ## golangci-lint, clang-format
	@test/install-deps.sh generate
	$(GOLANGCI) run --allow-parallel-runners ./...
	clang-format-19 --dry-run -Werror $(C_FILES) # -i mends it

install: build ## install the plugins into CNI_BIN_DIR; culvertctl, its manual and completions into PREFIX
	install -D -m 0755 -t $(DESTDIR)$(CNI_BIN_DIR) bin/culvert bin/culvert-ipam
	install -D -m 0755 bin/culvertctl $(DESTDIR)$(PREFIX)/bin/culvertctl
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	bin/culvertctl completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/culvertctl
	bin/culvertctl completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_culvertctl
	bin/culvertctl completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/culvertctl.fish

clean: ## remove what was built
	rm -rf bin
