# `make demo` shows Ciranda at work, `make test` sets up and passes every test; `make help` lists the rest.
# Nothing here is done twice: a step runs again only when what it reads has changed.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
COVERAGE_FLOOR ?= 90
TORCH ?= torch==2.13.0

SHELL := /bin/bash
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)
export CCACHE_NOHASHDIR := 1
# The extension is built by another program than the library: with the same name for the compiler, what one has
# compiled serves the other.
WITH_CCACHE = $(if $(shell command -v ccache),CC=$${CC:-cc} CXX=$${CXX:-c++} CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_C_COMPILER_LAUNCHER=ccache)

files_in = $(shell find $(1) -type f -not -name '*.pyc' 2> /dev/null)
ENGINE := CMakeLists.txt CMakePresets.json $(call files_in,cmake cpp)
HOROVOD := $(call files_in,compat/horovod)
PACKAGE := pyproject.toml LICENSE README.md CMakeLists.txt $(call files_in,cmake cpp src)
CPP_FORMATTED := $(shell find cpp tests examples benchmarks \( -name '*.hpp' -o -name '*.cc' -o -name '*.h' \
	-o -name '*.c' -o -name '*.cpp' \) 2> /dev/null)
PY_CHECKED := $(wildcard src compat tests tools examples benchmarks)

# The layers that only decide: every line of them can be reached by a unit test.
PURE_LAYERS := negotiate fuse request

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-cpp test-python check lint lint-cpp lint-python tidy format sanitize asan tsan fuzz guard coverage package \
	build install deps clean
# The stamps of one virtual environment must not be made at the same time.
.NOTPARALLEL:

help:  ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# --- setting up -------------------------------------------------------------------------------------------------

build/.deps-build: tools/install-deps.sh
	@mkdir -p build
	@tools/install-deps.sh build
	@touch $@

build/.deps-test: tools/install-deps.sh
	@mkdir -p build
	@tools/install-deps.sh test
	@touch $@ build/.deps-build

$(VENV)/.created: | build/.deps-build
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch comes first, and only if there is none: whichever build of it is there already is kept.
$(VENV)/.torch: | $(VENV)/.created
	$(BIN)/python -c 'import torch' 2> /dev/null || $(BIN)/pip install --quiet '$(TORCH)'
	@touch $@

$(VENV)/.build-tools: | $(VENV)/.created
	$(BIN)/pip install --quiet 'cmake>=3.25' 'ninja>=1.10'
	@touch $@

$(VENV)/.coverage-tools: | $(VENV)/.created
	$(BIN)/pip install --quiet 'gcovr>=8.0'
	@touch $@

$(VENV)/.installed: $(PACKAGE) | $(VENV)/.torch
	$(WITH_CCACHE) $(BIN)/pip install --quiet '.[examples]'
	@touch $@

$(VENV)/.installed-test: $(PACKAGE) | build/.deps-test $(VENV)/.torch $(VENV)/.build-tools
	$(WITH_CCACHE) $(BIN)/pip install --quiet '.[bench,examples,lint,test]'
	@touch $@ $(VENV)/.installed

# The module `horovod` and `horovodrun` are a package of their own: nobody gets them without asking.
$(VENV)/.installed-horovod: $(HOROVOD) $(VENV)/.installed-test
	$(BIN)/pip install --quiet ./compat/horovod
	@touch $@

deps: build/.deps-test  ## install the Debian packages that tests and checks need (root, if any is missing)

install: $(VENV)/.installed  ## make .venv and install the Python package into it

build/%/build.ninja: CMakePresets.json CMakeLists.txt | build/.deps-test $(VENV)/.build-tools
	$(WITH_CCACHE) cmake --preset $*

build: build/release/build.ninja  ## build the library and its tests in build/release
	cmake --build --preset release -j $(JOBS)

# --- using it ---------------------------------------------------------------------------------------------------

demo: $(VENV)/.installed  ## train a model on two processes and prove the result
	@mkdir -p out
	$(BIN)/ciranda run -np 2 $(BIN)/python examples/digits.py --output-dir out/demo

# --- testing ----------------------------------------------------------------------------------------------------

test: test-cpp test-python  ## set up, build, and run every test

test-cpp: build
	ctest --preset release
	@grep -h '^SKIPPED: ' build/release/Testing/Temporary/LastTest.log || true

test-python: $(VENV)/.installed-horovod
	$(BIN)/python -m pytest

check: build $(VENV)/.installed-horovod lint  ## what to run before a commit: build, unit tests, lint (some minutes)
	ctest --preset release
	$(BIN)/python -m pytest tests/python

sanitize: asan tsan  ## run the C++ tests under ASan with UBSan, and under TSan

asan: build/asan/build.ninja
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan

tsan: build/tsan/build.ninja
	cmake --build --preset tsan -j $(JOBS)
	$$(setarch -R true 2> /dev/null && echo setarch -R) ctest --preset tsan

fuzz: build/asan/build.ninja  ## run every parser's fuzz target, FUZZ_SECONDS seconds of computing in all (60)
	cmake --build --preset asan -j $(JOBS)
	tools/run_fuzz.sh build/asan $(FUZZ_SECONDS)

package: build $(VENV)/.installed-test  ## install the library, and build and run the examples against it
	tests/package/run.sh build/release build/package

guard: $(VENV)/.installed-test  ## fail if Ciranda has become twice as slow beside gloo as this kind of machine's baseline says
	$(BIN)/python benchmarks/guard.py

coverage: build/coverage/build.ninja $(VENV)/.coverage-tools  ## fail if tests reach less than COVERAGE_FLOOR % of a pure layer
	cmake --build --preset coverage -j $(JOBS) --target $(PURE_LAYERS:%=ciranda_%_test)
	find build/coverage -name '*.gcda' -delete
	for layer in $(PURE_LAYERS); do build/coverage/tests/cpp/$$layer/ciranda_$${layer}_test --gtest_brief=1 || exit 1; done
	for layer in $(PURE_LAYERS); do \
	  $(BIN)/gcovr --root . --filter "cpp/$$layer/" --fail-under-line $(COVERAGE_FLOOR) build/coverage || failed=1; \
	done; test -z "$$failed"

# --- tidiness ---------------------------------------------------------------------------------------------------

lint: lint-python lint-cpp  ## check format, types, layers, headers and common faults

lint-python: $(VENV)/.installed-test $(VENV)/.installed-horovod
	$(BIN)/ruff check $(PY_CHECKED)
	$(BIN)/ruff format --check $(PY_CHECKED)
	$(BIN)/mypy
	$(BIN)/python tools/make_reference.py --check

lint-cpp: build/release/build.ninja
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_headers.py
	clang-format --dry-run -Werror $(CPP_FORMATTED)

tidy: build/release/build.ninja  ## run clang-tidy over the sources that changed since it last passed
	$(BIN)/python tools/run_tidy.py build/release $(TIDY_FLAGS)

format: build/.deps-test $(VENV)/.installed-test  ## format every file
	$(BIN)/ruff check --fix-only --quiet $(PY_CHECKED)
	$(BIN)/ruff format $(PY_CHECKED)
	clang-format -i $(CPP_FORMATTED)

clean:  ## remove what was built, but not .venv
	rm -rf build dist
	rm -f $(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-horovod
