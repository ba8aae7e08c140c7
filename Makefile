# Everyday commands. Each does its own set-up (through apt on Debian and Ubuntu; elsewhere it says what is missing).
# Needs Rust, and on Debian or Ubuntu root or sudo for what is not installed yet.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
PYTHON ?= python3
# Further arguments: make test ARGS='--test fixtures', make demo ARGS=--help
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-ssbo test-swiftshader random-long mutants lint shaders shaders-check adreno adreno-report android-check minilm

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

demo: ## classify handwritten digits on the Vulkan device of this machine
	@scripts/setup.sh build vulkan
	@$(CARGO) run --quiet --example digits -- $(ARGS)

test: ## all tests, on lavapipe under the validation layer
	@scripts/setup.sh tests
	@scripts/env.sh lavapipe $(CARGO) test $(ARGS)

test-ssbo: ## all tests as a phone plans, with descriptors only, which synchronization validation sees in full
	@scripts/setup.sh tests
	@VKDELEGATE_ACCESS=ssbo VKDELEGATE_CLASS=adreno7xx scripts/env.sh lavapipe $(CARGO) test $(ARGS)

test-swiftshader: ## device, kernel and float32 fixture tests on SwiftShader, the minimum Vulkan device
	@scripts/setup.sh tests
	@scripts/env.sh swiftshader $(CARGO) test --test gpu --test kernels $(ARGS)
	@scripts/env.sh swiftshader $(CARGO) test --test fixtures $(ARGS) -- f32::
	@scripts/env.sh swiftshader $(CARGO) test --test choices --test integer_dots $(ARGS) -- work_group texels

random-long: ## 2,000 random programs: host before and after all passes, and device (tests run 100)
	@scripts/setup.sh tests
	@PROPTEST_CASES=$${PROPTEST_CASES:-2000} scripts/env.sh lavapipe $(CARGO) test --test random_programs $(ARGS)

# Files that hold the guard and the rewrite, and the tests that need no device. SHARD=2/8 runs the third eighth;
# ARGS=--list shows what would be changed. A mutant that survives is a missing test, or is like the original.
SHARD ?= 0/1
MUTATED := runtime/ir/constness.rs $(addprefix runtime/passes/,linear.rs live_weight.rs fold.rs evaluate.rs)

mutants: ## mutation testing of the guard and the rewrite, without a device (hours; SHARD=k/n for a part)
	@scripts/setup.sh build
	@command -v cargo-mutants >/dev/null || $(CARGO) install --locked cargo-mutants@27.1.0
	@CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) mutants --shard $(SHARD) --output target $(MUTATED:%=--file %) $(ARGS) \
	  -- --lib --test passes --test random_programs --test rewrite_counts \
	  -- --skip gpu:: --skip delegate:: --skip device

.PHONY: bench bench-device bench-peers
bench: ## time the reader, the passes and the planner, which need no device (ARGS=planner runs some)
	@scripts/setup.sh build
	@$(CARGO) bench --bench host -- $(ARGS)

bench-device: ## time replays of recorded programs and warm starts on a device (ARGS=replay runs some)
	@scripts/setup.sh build vulkan
	@$(CARGO) bench --bench device -- $(ARGS)

bench-peers: ## time linears here and in ncnn and IREE in turn, and print the ratios (set-up: benches/peers/README.md)
	@scripts/setup.sh build vulkan
	@$(CARGO) build --release
	@$(PYTHON) benches/peers/compare.py $(ARGS)

lint: ## formatting, clippy and docs, as CI checks them
	@scripts/setup.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps

shaders: ## compile the changed shaders into the committed index and bundles (builds shaderc once)
	@SHADERC_LIB_DIR=$$(scripts/shaderc.sh) $(CARGO) run --quiet -p make-shaders --features compile-shaders -- $(ARGS)

shaders-check: ## lint the shader compiler, compile all shaders, and compare them with the committed index and bundles
	@SHADERC_LIB_DIR=$$(scripts/shaderc.sh) $(CARGO) clippy --quiet -p make-shaders --features compile-shaders -- -D warnings
	@$(MAKE) --no-print-directory shaders ARGS=--check

adreno: ## compile every shader that a phone can pick for Adreno; fails on spills, packed dot products without their instruction, and regressions from benches/adreno.json
	@scripts/adreno_gate.sh $(ARGS)

adreno-report: ## print what Mesa's Adreno compiler makes of the shaders that a phone picks, and write benches/adreno.{json,md}
	@scripts/adreno_gate.sh --report

android-check: ## type-check the library for 64-bit Android; needs no NDK
	@scripts/setup.sh build
	@scripts/android_check.sh $(ARGS)

minilm: ## export the MiniLM sentence encoder with your Python (PYTHON=...) and verify it here
	@scripts/setup.sh build vulkan
	$(PYTHON) scripts/make_minilm.py target/minilm
	$(CARGO) run --release -- verify target/minilm/model.pt2 target/minilm/reference.safetensors --rtol 1e-3 --atol 1e-4
